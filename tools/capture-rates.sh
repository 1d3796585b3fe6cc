#!/bin/bash
# Measures the highest loss-free rates of a bare packet ring, of AF_XDP, and of `brunt capture` with and without a
# trace, over a pair of virtual interfaces in a separate network namespace. Needs root for AF_XDP; without it, that row
# is skipped.
#
#   capture-rates.sh [OPTION...]   options of `brunt-bench capture`, such as --quick, --rounds or capture files
#
# BENCH is the program (default: brunt-bench next to brunt).
set -euo pipefail
[ "${1:-}" != --prepare ] || exit 0
. "$(dirname "$0")/lib/wire.sh"
option=-rn; [ "$(id -u)" != 0 ] || option=-n
on_own_wire $option "$@"
"$BENCH" capture --wire v0,v1 "$@"
