#!/bin/bash
# The controller for slurm-agents.sh, as a job: waits for the agents, runs the experiment on them, and ends them.
#
#   sbatch --dependency=after:JOB slurm-run.sh FOLDER JOB AGENTS EXPERIMENT
#
# The experiment names its hosts a0, a1 … by their array tasks; this script adds their addresses. SBATCH
# --job-name=brunt SBATCH --nodes=1 SBATCH --ntasks=1 SBATCH --time=02:00:00 SBATCH --no-requeue
set -euo pipefail
folder=${1:?the folder with certificates} job=${2:?the job of the agents} count=${3:?how many} experiment=${4:?an experiment}
identity=$(realpath "$folder/certificates/controller.pem")
trap 'scancel "$job"' EXIT

ready=$folder/run-$job.toml
cp "$experiment" "$ready"
for ((index = 0; index < count; index++)); do
  file=$folder/agents-$job/$index
  # A task may wait in Slurm's queue for any length of time; a task that failed is no longer in the queue.
  until [ -s "$file" ]; do
    [ -n "$(squeue -h -j "${job}_$index" 2>/dev/null)" ] || { echo "agent $index does not run" >&2; exit 1; }
    sleep 1
  done
  printf '\n[hosts.a%s]\nagent = "%s"\nidentity = "%s"\n' "$index" "$(cat "$file")" "$identity" >> "$ready"
done
brunt run "$ready" --out "$folder/results-$job"
