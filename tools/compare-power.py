#!/usr/bin/env python3
"""Measures how often `brunt compare` detects a change, and how often it reports one that isn't there, on real runs.

    tools/compare-power.py BRUNT [--pairs 40] [--same 200] [--runs 8] [--time 200ms]

Measures pairs of small experiments on `null:` devices with a service time (`delay=`): the second of a pair is slower by
10 %, by 5 %, or not at all. Prints for each figure in how many pairs the verdict was "worse" (power), and in how many pairs
without a change any of the four figures was called better or worse. An example with synthetic pairs is quicker:
`cargo run -p brunt-result --example power`. Standard output has only the table. Takes some minutes.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

EXPERIMENT = """
name = "power"
repetitions = {runs}
[targets.t]
url = "null:1GiB?delay=lognormal:{delay:.0f}us,sigma=0.2"
[workloads.w]
queue_depth = 4
interval = "50ms"
stop = {{ time = "{time}" }}
"""
DELAY_US = 1000.0
FIGURES = ["iops", "mean", "p99"]


def measure(brunt, folder, name, factor, arguments):
    file = folder / f"{name}.toml"
    delay = DELAY_US * factor
    file.write_text(EXPERIMENT.format(runs=arguments.runs, delay=delay, time=arguments.time))
    out = folder / name
    subprocess.run([brunt, "run", file, "--out", out], check=True, capture_output=True)
    return out


def verdicts(brunt, a, b):
    compared = subprocess.run([brunt, "--json", "compare", a, b], check=True, capture_output=True)
    return {line["metric"]: line["comparison"]["verdict"] for line in json.loads(compared.stdout)["lines"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brunt", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--same", type=int, default=200)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--time", default="200ms")
    arguments = parser.parse_args()
    for factor, pairs in [(1.10, arguments.pairs), (1.05, arguments.pairs), (1.0, arguments.same)]:
        seen, wrong = dict.fromkeys(FIGURES, 0), 0
        for pair in range(pairs):
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                a = measure(arguments.brunt, folder, "a", 1.0, arguments)
                b = measure(arguments.brunt, folder, "b", factor, arguments)
                found = verdicts(arguments.brunt, a, b)
            for figure in FIGURES:
                seen[figure] += found[figure] == "worse"
            wrong += any(verdict in ("better", "worse") for verdict in found.values())
            print(f"{factor:.2f}: pair {pair + 1} of {pairs}", file=sys.stderr)
        if factor == 1.0:
            print(f"no change: {wrong} of {pairs} pairs had a false verdict")
        else:
            told = ", ".join(f"{figure} {seen[figure]}" for figure in FIGURES)
            print(f"+{factor - 1:.0%}: seen in {told} of {pairs} pairs")


if __name__ == "__main__":
    main()
