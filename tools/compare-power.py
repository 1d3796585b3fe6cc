#!/usr/bin/env python3
"""Measures how often `brunt compare` detects a change, and how often it reports one that doesn't exist, on real runs.

    tools/compare-power.py BRUNT [--rounds 40] [--runs 8] [--time 200ms] [--changes 10,5] [--neighbours] [--seed 1]

Measures experiments on a device with a service time, in rounds: two of the same device, then one that is slower by each
of the changes (in percent). Compares the first of a round with all others of it, and with the first `--apart` rounds
later, so that other experiments lie in between. With `--neighbours`, other programs use between none and two CPUs and
change every few seconds, also during a run.

Prints in how many pairs the verdict on each figure was right ("worse" for a change), and in how many pairs any figure had
a wrong verdict or "machines differed". Where a change of 10 % or more was missed in the rate, it is measured again with the
number of runs that the comparison advised, at most `--advised`. An example with synthetic pairs is quicker:
`cargo run -p brunt-result --example power`. Standard output has only the table. A round takes about ten seconds.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

EXPERIMENT = """
name = "power"
repetitions = {runs}
[targets.t]
url = "{url}"
[workloads.w]
queue_depth = 4
interval = "50ms"
stop = {{ time = "{time}" }}
"""
FIGURES = ["iops", "mean", "p99"]
HOGS = [0.0, 0.0, 0.0, 0.2, 0.5, 1.0, 2.0]
PERIOD_S = 0.05


def hog(share):
    """Uses this share of a CPU for as long as its parent lives."""
    parent = os.getppid()
    while os.getppid() == parent:
        begun = time.monotonic()
        while time.monotonic() - begun < PERIOD_S * share:
            pass
        time.sleep(PERIOD_S * (1 - share))
    os._exit(0)


def neighbours(seed):
    """Starts and ends hogs for as long as its parent lives."""
    chance, parent = random.Random(seed), os.getppid()
    while os.getppid() == parent:
        share, hogs = chance.choice(HOGS), []
        while share > 0:
            hogs.append(os.fork())
            if hogs[-1] == 0:
                hog(min(share, 1.0))
            share -= 1.0
        time.sleep(chance.uniform(0.3, 5.0))
        for pid in hogs:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    os._exit(0)


class Bench:
    """Measures and compares in a scratch folder."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.count = arguments, folder, 0

    def measure(self, change, runs):
        self.count += 1
        file, out = self.folder / f"{self.count}.toml", self.folder / f"{self.count}"
        url = self.arguments.device.format(delay=self.arguments.delay * (1 + change / 100))
        file.write_text(EXPERIMENT.format(runs=runs, url=url, time=self.arguments.time))
        subprocess.run([self.arguments.brunt, "run", file, "--out", out], check=True, capture_output=True)
        return out

    def compare(self, a, b):
        """The comparison of each figure."""
        compared = subprocess.run([self.arguments.brunt, "--json", "compare", a, b], check=True, capture_output=True)
        return {line["metric"]: line["comparison"] for line in json.loads(compared.stdout)["lines"]}

    def is_detected_as_advised(self, change, comparison):
        """Whether as many runs as were advised detect the change; `None` if too many or none were advised."""
        runs = comparison["effect"]["runs_wanted"]
        if runs is None or runs > self.arguments.advised:
            return None
        again = self.compare(self.measure(0.0, runs), self.measure(change, runs))
        return again["iops"]["verdict"] == "worse"


class Tally:
    """Verdicts on pairs with the same change."""

    def __init__(self, name, change):
        self.name, self.change, self.pairs = name, change, 0
        self.seen, self.any, self.wrong, self.machine = dict.fromkeys(FIGURES, 0), 0, 0, 0
        self.advised, self.advised_seen, self.unadvised = [], 0, 0

    def add(self, compared):
        verdicts = {metric: line["verdict"] for metric, line in compared.items()}
        wrong = {"better"} if self.change else {"better", "worse"}
        self.pairs += 1
        for figure in FIGURES:
            self.seen[figure] += verdicts[figure] == "worse"
        self.any += "worse" in verdicts.values()
        self.wrong += not wrong.isdisjoint(verdicts.values())
        self.machine += "machines-differed" in verdicts.values()

    def is_missed(self, compared):
        return self.change >= 10 and compared["iops"]["verdict"] != "worse"

    def add_advised(self, runs, is_seen):
        if is_seen is None:
            self.unadvised += 1
        else:
            self.advised.append(runs)
            self.advised_seen += is_seen

    def row(self):
        seen = [str(self.seen[figure]) for figure in FIGURES] + [str(self.any)] if self.change else [""] * 4
        advised = ""
        if self.advised:
            advised = f"{self.advised_seen} of {len(self.advised)} with {min(self.advised)} to {max(self.advised)} runs"
        if self.unadvised:
            advised += f"; {self.unadvised} without advice"
        cells = [self.name, str(self.pairs), *seen, str(self.wrong), str(self.machine), advised.removeprefix("; ")]
        return f"| {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brunt", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--apart", type=int, default=8, help="rounds between pairs that are far apart")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--time", default="200ms")
    parser.add_argument("--changes", default="10,5", help="in percent")
    parser.add_argument("--device", default="null:1GiB?delay=lognormal:{delay:.0f}us,sigma=0.2")
    parser.add_argument("--delay", type=float, default=1000.0, help="mean service time in microseconds")
    parser.add_argument("--neighbours", action="store_true")
    parser.add_argument("--advised", type=int, default=0, help="maximum number of runs to measure again with")
    parser.add_argument("--seed", type=int, default=1, help="of the neighbours")
    arguments = parser.parse_args()
    changes = [float(change) for change in arguments.changes.split(",") if change]
    same, apart = Tally("none", 0.0), Tally("none, far apart", 0.0)
    changed = [Tally(f"+{change:g} %", change) for change in changes]
    others = 0
    if arguments.neighbours and (others := os.fork()) == 0:
        neighbours(arguments.seed)
    try:
        with tempfile.TemporaryDirectory() as folder:
            bench, firsts = Bench(arguments, pathlib.Path(folder)), []
            for number in range(arguments.rounds):
                first = bench.measure(0.0, arguments.runs)
                firsts.append(first)
                same.add(bench.compare(first, bench.measure(0.0, arguments.runs)))
                if number >= arguments.apart:
                    apart.add(bench.compare(firsts[number - arguments.apart], first))
                for tally in changed:
                    compared = bench.compare(first, bench.measure(tally.change, arguments.runs))
                    tally.add(compared)
                    if arguments.advised and tally.is_missed(compared):
                        runs = compared["iops"]["effect"]["runs_wanted"]
                        tally.add_advised(runs, bench.is_detected_as_advised(tally.change, compared["iops"]))
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
    finally:
        if others:
            os.kill(others, 15)
            os.waitpid(others, 0)
    print("| change | pairs | rate | mean | p99 | any figure | wrong verdict | machines differed | missed, advised |")
    print("|---|---|---|---|---|---|---|---|---|")
    for tally in [same, apart, *changed]:
        print(tally.row())


if __name__ == "__main__":
    main()
