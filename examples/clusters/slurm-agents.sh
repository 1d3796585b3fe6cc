#!/bin/bash
# Runs one agent per task of a Slurm array, each on its own node: docs/clusters.md. FOLDER is on a file system that all
# nodes share.
#
#   brunt agent init FOLDER/certificates $(sinfo -hN -o %N | sort -u)
#   agents=$(sbatch --parsable slurm-agents.sh FOLDER iscsi:)
#   sbatch --dependency=after:$agents slurm-run.sh FOLDER $agents 2 experiment.toml
#
#SBATCH --job-name=brunt-agents
#SBATCH --array=0-1
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --exclusive
#SBATCH --time=02:00:00
# A restarted agent would make it a different measurement.
#SBATCH --no-requeue
set -euo pipefail
folder=${1:?the folder with certificates}; shift
allow=(); for what; do allow+=(--allow "$what"); done
job=${SLURM_ARRAY_JOB_ID:?sbatch sets it} index=${SLURM_ARRAY_TASK_ID:?sbatch --array sets it} node=${SLURMD_NODENAME:?}
mkdir -p "$folder/agents-$job"

# The first line of the agent's output is the address on which it listens. The file with the address appears only then,
# and complete.
said=$folder/agents-$job/said-$index
brunt agent --listen 0.0.0.0:0 --identity "$folder/certificates/agent-$node.pem" "${allow[@]}" > "$said" &
agent=$!
trap 'kill "$agent"' TERM INT
until [ -s "$said" ]; do
  kill -0 "$agent" 2>/dev/null || { wait "$agent"; exit 1; }
  sleep 0.1
done
address=$(head -n 1 "$said")
echo "$node:${address##*:}" > "$folder/agents-$job/.$index"
mv "$folder/agents-$job/.$index" "$folder/agents-$job/$index"

# Runs until the controller's job cancels this task; its signal interrupts the first wait.
wait "$agent" || wait "$agent" || true
