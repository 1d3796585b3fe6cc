# Compiler flags of programs that go into packages, for tools/packages.sh and CI (sourced): messages of crates name
# "/crates/NAME-VERSION/…" instead of where this machine's Cargo keeps its sources. Sources have to be there already
# (cargo fetch).

# What RUSTFLAGS has to be: what it is, and these. The same when it has them.
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
