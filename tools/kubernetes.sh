#!/bin/bash
# Installs the schema of the Kubernetes API from PyPI's kubernetes-validate in its own environment, to test the manifests
# of examples/clusters.
#
#   kubernetes.sh --prepare     fetch it (network)
#   kubernetes.sh --ready       exit 0 when prepared
#   kubernetes.sh VERSION FILE  validate all objects of FILE against the API of that version (1.29), without unknown
#                               fields; print them as a JSON list
set -euo pipefail
cd "$(dirname "$0")/.."
DIR=$(realpath -m "${BRUNT_TOOLS:-${CARGO_TARGET_DIR:-target}/tools}/kubernetes")
VERSION=1.37.0

ready() { [ -e "$DIR/version-$VERSION" ]; }

prepare() {
  rm -rf "$DIR"; mkdir -p "$(dirname "$DIR")"
  python3 -m venv "$DIR"
  "$DIR/bin/pip" install --quiet --disable-pip-version-check "kubernetes-validate==$VERSION"
  "$DIR/bin/python" -c 'import kubernetes_validate'
  touch "$DIR/version-$VERSION"
}

case ${1:-} in
  --prepare) ready || prepare ;;
  --ready) ready ;;
  "") sed -n '2,8p' "$0"; exit 2 ;;
  *)
    exec "$DIR/bin/python" -c '
import json, sys, yaml, kubernetes_validate
version, file = sys.argv[1:]
objects = [found for found in yaml.safe_load_all(open(file)) if found]
for found in objects:
    name = found.get("kind", "?") + " " + str(found.get("metadata", {}).get("name"))
    try:
        kubernetes_validate.validate(found, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError,
            kubernetes_validate.InvalidSchemaError, kubernetes_validate.VersionNotSupportedError) as error:
        sys.exit(f"{file}: {name}: {error}")
json.dump(objects, sys.stdout)
' "$1" "$2"
    ;;
esac
