#!/bin/bash
# Starts agents on hosts that have ssh, for experiments that reach these agents over TLS: docs/clusters.md.
#
#   agents.sh FOLDER start HOST...   copies brunt and a certificate to each host and starts an agent there
#   agents.sh FOLDER hosts           prints the agents as [hosts.a0], [hosts.a1] … for an experiment file
#   agents.sh FOLDER stop            ends the agents and removes what was copied
#
# FOLDER holds the certificates and the list of agents. Environment: ALLOW, what agents may open ("iscsi: /dev/nvme1n1");
# PORT (0: a free one); BRUNT, the program to copy, preferably the static one; SSH ("ssh -F FILE").
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,9p' "$0"; exit 2; }
folder=$1 what=$2; shift 2
SSH=${SSH:-ssh} BRUNT=${BRUNT:-$(command -v brunt || true)} PORT=${PORT:-0} ALLOW=${ALLOW:-}
list=$folder/agents

die() { echo "agents.sh: $1" >&2; exit 1; }

# on HOST COMMAND: runs it there, with the file INPUT (default: nothing) as its standard input.
on() { $SSH "$1" "$2" < "${INPUT:-/dev/null}"; }

start() {
  [ -x "$BRUNT" ] || die "no program to copy: set BRUNT"
  [ ! -s "$list" ] || die "$list has agents: stop them first"
  mkdir -p "$folder"
  local allow='' host name far line index=0
  for name in $ALLOW; do allow+=" --allow $(printf %q "$name")"; done
  for host; do
    name=${host#*@}
    # Certificates are for the name that the controller connects to; those that exist are kept.
    [ -e "$folder/certificates/agent-$name.pem" ] || "$BRUNT" agent init "$folder/certificates" "$name" >/dev/null
    # shellcheck disable=SC2016 # the remote shell's TMPDIR
    far=$(on "$host" 'mktemp -d "${TMPDIR:-/tmp}/brunt-agent-XXXXXX"')
    echo "a$index $host $name $far -" >> "$list"
    INPUT=$BRUNT on "$host" "cat > $far/brunt && chmod 700 $far/brunt"
    INPUT=$folder/certificates/agent-$name.pem on "$host" "umask 077; cat > $far/identity.pem"
    # The first line of an agent's output is the address on which it listens.
    on "$host" "cd $far && { setsid ./brunt agent --listen 0.0.0.0:$PORT --identity identity.pem$allow > said 2> notes < /dev/null & echo \$! > pid; }"
    line=$(on "$host" "cd $far; for i in \$(seq 300); do [ -s said ] && break; kill -0 \$(cat pid) || break; sleep 0.1; done; head -n 1 said")
    [ -n "$line" ] || { on "$host" "cat $far/notes" >&2 || true; die "the agent on $host does not listen"; }
    sed -i "\$s/-\$/$name:${line##*:}/" "$list"
    index=$((index + 1))
  done
}

hosts() {
  [ -s "$list" ] || die "no agents: start them first"
  while read -r id _ _ _ address; do
    printf '\n[hosts.%s]\nagent = "%s"\nidentity = "%s"\n' "$id" "$address" "$(realpath "$folder/certificates/controller.pem")"
  done < "$list"
}

stop() {
  local failed=0
  while read -r id host _ far _ <&3; do
    # SIGTERM ends an agent and all of its workers.
    on "$host" "[ ! -d $far ] || { cd $far; p=\$(cat pid 2>/dev/null) && kill \$p 2>/dev/null; for i in \$(seq 100); do kill -0 \$p 2>/dev/null || break; sleep 0.1; done; rm -rf $far; }" \
      || { echo "agents.sh: $id on $host was not reached" >&2; failed=1; continue; }
  done 3< "$list"
  [ $failed = 0 ] && rm -f "$list"
}

case $what in
  start) [ $# -ge 1 ] || die "start takes hosts"; start "$@" ;;
  hosts) hosts ;;
  stop) stop ;;
  *) die "start, hosts or stop, not $what" ;;
esac
