"""Runs an experiment on a store that loses a daemon, for tools/stores.sh, and checks its summary.

    stores.py BRUNT EXPERIMENT.toml OUT [without-faults]

Every run must be complete, with each fault proven and removed, and without errors: a lost acknowledged write is an error.
With `without-faults`, runs have no faults. Prints the outcome of each run, the time, and the maximum memory of the processes
(proportional set size, sampled every second).
"""
import json
import os
import subprocess
import sys
import time


def below(pid):
    """This process and all its descendants."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as children:
                    found += [int(child) for child in children.read().split()]
        except OSError:
            pass  # It has ended.
    return found


def held(pid):
    """Memory of a process in KiB, with shared memory divided among the processes that share it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except OSError:
        return 0


def watched(command):
    """Runs a command; returns its status, output, duration in seconds, and the maximum memory of all its processes in MiB."""
    begin, most = time.monotonic(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while True:
            try:
                said, _ = process.communicate(timeout=1)
                return process.returncode, said, time.monotonic() - begin, most >> 10
            except subprocess.TimeoutExpired:
                most = max(most, sum(held(pid) for pid in below(process.pid)))


def mistakes(summary, targets, has_faults):
    """Yields what is wrong with the results."""
    points = summary["points"]
    if len(points) != targets:
        yield f"{len(points)} points instead of {targets}"
    for point in points:
        for run in point["runs"]:
            name = point.get("target", "?")
            print(f"  {name}: {run['requests_per_second']:.0f} requests/s in {run['measured_s']:.1f} s, {run['stopped']}")
            if run["stopped"] != "done" or not run["requests_per_second"] > 0:
                yield f"{name}: it did not run to its end"
            if run.get("first_error") or run["losses"]:
                yield f"{name}: {run.get('first_error')} {run['losses']}"
            faults = run.get("faults") or []
            if has_faults and not faults:
                yield f"{name}: there was no fault"
            for fault in faults:
                print(f"    {fault['name']}: {fault['shown_by']}; {fault['gone_by']}")
                if not (fault["shown_by"] and fault["gone_by"]):
                    yield f"{name}: the fault '{fault['name']}' was not seen to come and go"


def main():
    brunt, experiment, out, *without = sys.argv[1:]
    check = subprocess.run([brunt, "--json", "run", "--check", experiment], stdout=subprocess.PIPE, check=True)
    runs = json.loads(check.stdout)["runs"]
    status, said, seconds, memory = watched([brunt, "--json", "run", experiment, "--out", out])
    print(f"  {seconds:.0f} s, at most {memory} MiB of memory", flush=True)
    if status != 0:
        sys.exit(f"{experiment}: exit status {status}; logs are in {out}/services")
    wrong = list(mistakes(json.loads(said), runs, without != ["without-faults"]))
    if wrong:
        sys.exit("\n".join(wrong))


main()
