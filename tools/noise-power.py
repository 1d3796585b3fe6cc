#!/usr/bin/env python3
"""Measures how often Brunt's report mentions the machine: on an idle one (false alarms), and next to a CPU hog.

    tools/noise-power.py BRUNT [--runs 100] [--time 1s] [--hogs 0,0.1,0.2,1]

Runs experiments of one run each on a memory device, alone and next to a hog that takes a share of a CPU (above 1: of
several), and prints in how many of them the table has a "machine:" line. The conditions take turns, so that a change of
the machine affects all of them. The machine should be idle: runs during which anything else used 5 % of a CPU or more, by
the kernel's count of all CPUs' time, or the hypervisor took 1 %, are counted but don't enter the table. Takes `runs` times
the length of a run for each condition: eight minutes by default.
"""
import argparse
import os
import pathlib
import resource
import subprocess
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
# CPUs used by other programs, and share of stolen time, above which the machine was not idle.
IDLE_CPUS = 0.05
STOLEN = 0.01


def burn(share):
    """Takes this share of a CPU until it is killed."""
    while True:
        begun = time.monotonic()
        while time.monotonic() - begun < PERIOD_S * share:
            pass
        time.sleep(PERIOD_S * (1 - share))


def start_hogs(share):
    """Starts hogs that together use this share, each at most one CPU."""
    hogs = []
    while share > 0:
        pid = os.fork()
        if pid == 0:
            burn(min(share, 1.0))
        hogs.append(pid)
        share -= 1.0
    return hogs


class Moment:
    """CPU time in use, in seconds from some moment, and the part of it that this process and its ended children used."""

    def __init__(self):
        fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()
        second = os.sysconf("SC_CLK_TCK")
        self.at_s = time.monotonic()
        # The kernel measures idle time exactly, but samples the others every tick.
        self.busy_s = os.cpu_count() * self.at_s - (int(fields[4]) + int(fields[5])) / second
        self.stolen_s = int(fields[8]) / second
        uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        self.own_s = sum(use.ru_utime + use.ru_stime for use in uses)


def is_idle(before, after):
    """Whether nothing else ran between two moments, apart from this process and children that ended."""
    seconds = after.at_s - before.at_s
    others = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return others < IDLE_CPUS * seconds and after.stolen_s - before.stolen_s < STOLEN * seconds * os.cpu_count()


def mention(brunt, file, out):
    """The line about the machine, if there is one."""
    result = subprocess.run([brunt, "run", file, "--out", out], check=True, capture_output=True, text=True)
    lines = [line.strip() for line in (result.stdout + result.stderr).splitlines()]
    return next((line for line in lines if line.startswith("machine:")), None)


def run_next_to(share, brunt, file, out):
    """The line about the machine in a run next to hogs, and whether nothing else ran."""
    before = Moment()
    hogs = start_hogs(share)
    try:
        said = mention(brunt, file, out)
    finally:
        for pid in hogs:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return said, is_idle(before, Moment())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("brunt")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--time", default="1s")
    parser.add_argument("--hogs", default="0,0.1,0.2,1")
    arguments = parser.parse_args()
    shares = [float(share) for share in arguments.hogs.split(",")]
    said, disturbed = {share: [] for share in shares}, dict.fromkeys(shares, 0)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file = folder / "noise.toml"
        file.write_text(EXPERIMENT.format(time=arguments.time))
        for number in range(arguments.runs):
            for share in shares:
                line, idle = run_next_to(share, arguments.brunt, file, folder / f"{number}-{share}")
                if idle:
                    said[share].append(line)
                else:
                    disturbed[share] += 1
    print("| other programs | runs that mention the machine | the first | not idle |\n|---|---|---|---|")
    for share, lines in said.items():
        loud = [line for line in lines if line]
        name = "none" if share == 0 else f"{share:.0%} of a CPU"
        print(f"| {name} | {len(loud)} of {len(lines)} | {loud[0] if loud else ''} | {disturbed[share]} |")


if __name__ == "__main__":
    main()
