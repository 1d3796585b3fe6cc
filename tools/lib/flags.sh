# Compiler flags for programs that go into packages, for tools/packages.sh and CI (sourced): messages of crates show
# "/crates/NAME-VERSION/…" instead of the path of this machine's Cargo sources. The sources must already be there
# (cargo fetch).

# The value for RUSTFLAGS: the current one plus these flags, unless it already has them.
portable_flags() {
  local flags=${RUSTFLAGS:-} folder
  case $flags in
    *--remap-path-prefix=*) ;;
    *) for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
         flags+="${flags:+ }--remap-path-prefix=$folder=/crates/"
       done ;;
  esac
  printf '%s\n' "$flags"
}
