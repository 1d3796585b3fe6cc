#!/usr/bin/env python3
"""How often Brunt mentions the machine: on an idle one (false alarms), and next to a program that takes CPU time.

    tools/noise-power.py BRUNT [--runs 100] [--time 1s] [--hogs 0,0.1,0.2,1]

Runs experiments of one run each on a memory device, alone and next to a hog that takes a share of a CPU (above 1: of
several), and prints in how many of them the table has a "machine:" line. The conditions take turns, so that a change of
the machine affects all of them. The machine must be idle; the load average before and after is printed. Takes
`runs` times the length of a run for each condition: eight minutes by default.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

EXPERIMENT = """
name = "noise"
repetitions = 1
[targets.memory]
url = "memory:64MiB?delay=const:100us"
[workloads.reads]
queue_depth = 4
stop = {{ time = "{time}" }}
"""
PERIOD_S = 0.05


def burn(share):
    """Takes this share of a CPU until it is killed."""
    while True:
        begun = time.monotonic()
        while time.monotonic() - begun < PERIOD_S * share:
            pass
        time.sleep(PERIOD_S * (1 - share))


def start_hogs(share):
    """Starts as many hogs as it takes, none above a whole CPU."""
    hogs = []
    while share > 0:
        pid = os.fork()
        if pid == 0:
            burn(min(share, 1.0))
        hogs.append(pid)
        share -= 1.0
    return hogs


def is_mentioned(brunt, file, out):
    result = subprocess.run([brunt, "run", file, "--out", out], check=True, capture_output=True, text=True)
    lines = [line.strip() for line in (result.stdout + result.stderr).splitlines()]
    return next((line for line in lines if line.startswith("machine:")), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("brunt")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--time", default="1s")
    parser.add_argument("--hogs", default="0,0.1,0.2,1")
    arguments = parser.parse_args()
    shares = [float(share) for share in arguments.hogs.split(",")]
    said = {share: [] for share in shares}
    print(f"load averages before: {open('/proc/loadavg').read().split()[:3]}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file = folder / "noise.toml"
        file.write_text(EXPERIMENT.format(time=arguments.time))
        for number in range(arguments.runs):
            for share in shares:
                hogs = start_hogs(share)
                try:
                    said[share].append(is_mentioned(arguments.brunt, file, folder / f"{number}-{share}"))
                finally:
                    for pid in hogs:
                        os.kill(pid, 9)
                        os.waitpid(pid, 0)
    print(f"load averages after: {open('/proc/loadavg').read().split()[:3]}", file=sys.stderr)
    print("| other programs | runs that mention the machine | the first |\n|---|---|---|")
    for share, lines in said.items():
        loud = [line for line in lines if line]
        name = "none" if share == 0 else f"{share:.0%} of a CPU"
        print(f"| {name} | {len(loud)} of {len(lines)} | {loud[0] if loud else ''} |")


if __name__ == "__main__":
    main()
