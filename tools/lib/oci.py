"""Writes an OCI image archive with one static program, without root and without a daemon.

    oci.py PROGRAM THIRD_PARTY VERSION OUT.tar

Follows the OCI image specification 1.0: blobs by their SHA-256, a configuration, a manifest, an index. The program runs as
user 65532 in /work. Dates are SOURCE_DATE_EPOCH, so that the same program gives the same bytes.
"""

import datetime
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile

USER = 65532
EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])


def add(archive, name, data=None, mode=0o644, owner=0):
    info = tarfile.TarInfo(name)
    info.mtime, info.mode, info.uid, info.gid = EPOCH, mode, owner, owner
    if data is None:
        info.type = tarfile.DIRTYPE
        archive.addfile(info)
    else:
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))


def layer(program, third_party):
    """The files, as an uncompressed archive."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for folder in ("etc", "usr", "usr/bin", "usr/share", "usr/share/doc", "usr/share/doc/brunt"):
            add(archive, folder, mode=0o755)
        add(archive, "tmp", mode=0o1777)
        add(archive, "work", mode=0o755, owner=USER)
        add(archive, "etc/passwd", f"root:x:0:0::/:/\nbrunt:x:{USER}:{USER}::/work:/\n".encode())
        add(archive, "etc/group", f"root:x:0:\nbrunt:x:{USER}:\n".encode())
        add(archive, "usr/bin/brunt", program, mode=0o755)
        for name in ("LICENSE-APACHE", "LICENSE-MIT"):
            with open(name, "rb") as file:
                add(archive, f"usr/share/doc/brunt/{name}", file.read())
        add(archive, "usr/share/doc/brunt/THIRD-PARTY", third_party)
    return out.getvalue()


def main():
    program, third_party, version, target = sys.argv[1:]
    with open(program, "rb") as file:
        program = file.read()
    with open(third_party, "rb") as file:
        third_party = file.read()
    blobs = {}

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    files = layer(program, third_party)
    packed = gzip.compress(files, 9, mtime=EPOCH)
    created = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "brunt",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
    }
    config = {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/bin", "HOME=/work"],
            "Entrypoint": ["/usr/bin/brunt"],
            "Cmd": ["--help"],
            "WorkingDir": "/work",
            "Volumes": {"/work": {}},
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(files).hexdigest()}"]},
        "history": [{"created": created, "created_by": "tools/packages.sh"}],
    }
    encoded = lambda value: json.dumps(value, sort_keys=True).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(encoded(config), "config.v1+json"),
        "layers": [blob(packed, "layer.v1.tar+gzip")],
        "annotations": labels,
    }
    reference = blob(encoded(manifest), "manifest.v1+json")
    reference["annotations"] = {"org.opencontainers.image.ref.name": f"brunt:{version}"}
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        add(archive, "oci-layout", encoded({"imageLayoutVersion": "1.0.0"}))
        add(archive, "index.json", encoded({"schemaVersion": 2, "manifests": [reference]}))
        for folder in ("blobs", "blobs/sha256"):
            add(archive, folder, mode=0o755)
        for digest, data in sorted(blobs.items()):
            add(archive, f"blobs/sha256/{digest}", data)


main()
