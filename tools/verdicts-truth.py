#!/usr/bin/env python3
"""Judges Brunt's verdicts about faults that a server injects itself, by what the server was told to do.

    tools/verdicts-truth.py BRUNT TRUTH_SERVER [--only NAME] [--keep FOLDER] [--record FILE --machine TEXT]

TRUTH_SERVER is a program that serves NBD on a loopback port with exact service times. It takes these options, each as
`key=value` (times in milliseconds unless stated):

    port                        loopback port to listen on
    mode, t1, t2, p             service time: const (t1), exp (mean t1), bimodal (t2 with probability p); t1 and t2 in us
    moda, modp                  amplitude (a share) and period (seconds) of an oscillation of the service time
    drift                       growth of the service time per second, as a share
    servers                     requests served at a time; without it, all at once
    stall_every, stall_len, stall_off   requests that arrive in a stall are served after it
    f_at, f_for, f_mul, f_add   its own fault: a factor of the service time, and microseconds to add
    gap                         the first request after this long without any is time zero of all the others

Brunt is only told the window, by a fault without an effect: a process that locks one page of memory. Each of twenty
experiments has four runs of six seconds. Prints a table: what the server was told, what Brunt measured, and whether its
verdicts are right (`open` for inconclusive ones). Needs root (the server runs with real-time priority) and an idle
machine; takes eleven minutes. The exit status is 1 if a verdict is wrong.

--record appends the experiments' intervals and truths to FILE, for `brunt-bench verdicts --recorded`
(testdata/verdicts/recorded.jsonl.zst); TEXT says what else ran on the machine.
"""
import argparse
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

INTERVAL_S = 0.1
RUN_S, AT_S, FOR_S = 6.0, 2.0, 2.0
DEPTH = 16
T1_US = 5000.0
EXPERIMENT = """
name = "truth"
repetitions = 4
[targets.server]
url = "nbd://127.0.0.1:{port}/x"
[workloads.reads]
interval = "100ms"
stop = {{ time = "{run:g}s" }}
{load}
[[fault]]
name = "window"
memory = "4KiB"
at = "{at:g}s"
for = "{length:g}s"
[[phase]]
workloads = ["reads"]
wait_for = {{ command = ["sleep", "{pause:g}"] }}
"""


class Case:
    """An experiment: the server's noise, its fault, and what follows from them."""

    def __init__(self, name, noise, times=1.0, add_us=0.0, stall_s=0.0, rate=None, t1=T1_US):
        self.name, self.rate, self.stall_s = name, rate, stall_s
        self.servers = noise.get("servers")
        share = noise.get("p", 0.0)
        # The mean service time without the fault and with it. Oscillations and drifts multiply both.
        self.usual_us = t1 if "t2" not in noise else t1 * (1 - share) + noise["t2"] * share
        self.slow_us = self.usual_us * times + add_us
        self.options = {"mode": "const", "t1": t1, **noise}
        self.gap_s = max(0.7, stall_s + 0.3)
        if times != 1.0 or add_us:
            self.options |= {"f_at": 1e3 * AT_S, "f_for": 1e3 * FOR_S, "f_mul": times, "f_add": add_us}
        if stall_s:
            self.options |= {"stall_every": 1e6, "stall_len": 1e3 * stall_s, "stall_off": 1e3 * AT_S}
        self.has_effect = times != 1.0 or bool(add_us) or bool(stall_s)

    def drop(self):
        """The share of the requests that are missing in the window."""
        if self.stall_s:
            # In an open loop, the requests are still answered within the window, only later.
            return 0.0 if self.rate and self.stall_s < FOR_S else min(self.stall_s / FOR_S, 1.0)
        if self.rate is None:
            return 1 - self.usual_us / self.slow_us
        if self.servers:
            return max(0.0, 1 - 1e6 / self.slow_us / self.rate)
        # Nothing is answered until the first slow request is answered.
        return (self.slow_us - self.usual_us) / 1e6 / FOR_S

    def wait_s(self):
        """All requests' waiting time beyond the usual."""
        longer_s = (self.slow_us - self.usual_us) / 1e6
        if self.rate is None:
            return DEPTH * FOR_S * self.drop()
        if self.stall_s:
            return self.rate * self.stall_s**2 / 2
        if not self.servers:
            return self.rate * FOR_S * longer_s
        overhang_s, later = self.backlog()
        return overhang_s * (self.rate * FOR_S + later) / 2

    def backlog(self):
        """The queue of a server that handles one request at a time: how long after the window it still answers requests
        that arrived in it (a request takes as long as its arrival decides), and how many later ones wait."""
        overhang_s = self.rate * FOR_S * self.slow_us / 1e6 - FOR_S
        return overhang_s, overhang_s / (1 / self.rate - self.usual_us / 1e6)

    def back_s(self):
        """When the effect is over, from the end of the window: the earliest and the latest time."""
        if self.stall_s:
            # The effect ends with the window or earlier.
            return (0.0, 0.0)
        if self.servers:
            _, later = self.backlog()
            return (later / self.rate,) * 2
        return (0.0, self.slow_us / 1e6)

    def is_judged_by_rate(self):
        """In an open loop, a fault delays requests but keeps their rate."""
        return self.rate is None


BIMODAL = {"mode": "bimodal", "p": 0.05, "t2": 10 * T1_US}
EXPONENTIAL = {"mode": "exp"}


def waves(share, period_s):
    return {"moda": share, "modp": period_s}


CASES = [
    Case("none", {}),
    Case("none, oscillating", waves(0.2, 3)),
    Case("none, exponential", EXPONENTIAL),
    Case("none, bimodal", BIMODAL),
    Case("5 %", {}, times=1 / 0.95),
    Case("10 %, exponential", EXPONENTIAL, times=1 / 0.9),
    Case("10 %, oscillating", waves(0.1, 1.3), times=1 / 0.9),
    Case("30 %, bimodal", BIMODAL, times=1 / 0.7),
    Case("30 %, oscillating", waves(0.2, 0.9), times=1 / 0.7),
    Case("50 %", {}, times=2),
    Case("50 %, drifting", {"drift": 0.03}, times=2),
    Case("70 %, oscillating", waves(0.1, 4), times=1 / 0.3),
    Case("90 %, exponential", EXPONENTIAL, times=10),
    Case("95 %", {}, times=20),
    Case("stall of 1 s", {}, stall_s=1.0),
    Case("stall of 0.3 s, oscillating", waves(0.2, 3), stall_s=0.3),
    Case("stall of 2 s, bimodal", BIMODAL, stall_s=2.0),
    Case("open loop, 10 ms longer", EXPONENTIAL, add_us=10_000, rate=900),
    Case("open loop, stall of 1 s", waves(0.1, 4), stall_s=1.0, rate=900),
    Case("open loop, slow recovery", {"servers": 1}, times=2, rate=575, t1=1000.0),
]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serve(server, port, case):
    options = {"port": port, "gap": 1e3 * case.gap_s, **case.options}
    process = subprocess.Popen([server, *(f"{key}={value:g}" if key not in ("mode", "port") else f"{key}={value}"
                                          for key, value in options.items())])
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    sys.exit(f"{server} does not listen on port {port}")


def measure(brunt, server, case, folder):
    """Runs the experiment; returns what Brunt says about the fault, over all runs."""
    port = free_port()
    load = f"queue_depth = {DEPTH}"
    if case.rate:
        load = f'queue_depth = 2048\narrival = {{ kind = "open", rate = {case.rate}, process = "constant" }}'
    file = folder / "experiment.toml"
    pause_s = case.gap_s + 0.2
    file.write_text(EXPERIMENT.format(port=port, load=load, run=RUN_S, at=AT_S, length=FOR_S, pause=pause_s))
    process = serve(server, port, case)
    try:
        result = subprocess.run([brunt, "run", file, "--out", folder / "results"], capture_output=True, text=True)
    finally:
        process.terminate()
        process.wait()
    (folder / "output.txt").write_text(result.stdout + result.stderr)
    if result.returncode != 0:
        sys.exit(f"{case.name}: {result.stdout}{result.stderr}")
    summary = json.loads((folder / "results" / "summary.json").read_text())
    return summary["points"][0]["degradation"][0]


RECORDED = ("SELECT run, start_ns, end_ns, completed, round(response_mean_ns), waiting, round(waiting_mean_ns), waiting_max_ns "
            "FROM intervals ORDER BY run, interval")


def record(brunt, case, results, machine):
    """The experiment as a line for the benchmark of verdicts."""
    table = subprocess.run([brunt, "sql", results, RECORDED, "--csv"], check=True, capture_output=True, text=True)
    series = {}
    for line in table.stdout.splitlines()[1:]:
        run, *cells = (None if cell == "" else int(float(cell)) for cell in line.split(","))
        series.setdefault(run, []).append(cells)
    runs = json.loads((results / "summary.json").read_text())["points"][0]["runs"]
    faults = [run["faults"][0] for run in runs]
    line = {"machine": machine, "name": case.name, "drop": round(case.drop(), 6), "is_open": not case.is_judged_by_rate()}
    if case.has_effect:
        line |= {"wait_s": round(case.wait_s(), 6), "back_s": [round(at, 6) for at in case.back_s()]}
    # Times of faults count from the first interval, times of intervals from the start of the workers.
    line["runs"] = [{"fault_s": [fault[edge] + intervals[0][0] / 1e9 for edge in ("start_s", "end_s")], "intervals": intervals}
                    for fault, intervals in zip(faults, series.values(), strict=True)]
    return json.dumps(line, separators=(",", ":"))


def is_near(estimate, truth, off):
    """Whether the estimate is within this distance of the truth, or the truth is in its interval."""
    low, high = estimate["low"], estimate["high"]
    return abs(estimate["mean"] - truth) <= off or (low is not None and low <= truth <= high)


def said(estimate, unit, factor=1.0):
    if estimate is None:
        return "unknown"
    half = "" if estimate["high"] is None else f" ± {factor * (estimate['high'] - estimate['mean']):.2f}"
    return f"{factor * estimate['mean']:.2f}{half}{unit}"


def judge_detection(case, figure, runs):
    seen = (figure["detected_s"] or {"runs": 0})["runs"]
    if 2 * figure["detection_inconclusive"] >= runs:
        return "open"
    return "right" if (2 * seen >= runs) == case.has_effect else "wrong"


def judge_recovery(case, figure, runs):
    back = figure["recovered_s"]
    if back is None:
        return "open" if figure["recovery_inconclusive"] else "wrong"
    early, late = case.back_s()
    nearest = min(max(back["mean"], early), late)
    is_right = is_near(back, nearest, INTERVAL_S) and not figure["not_recovered"]
    if is_right and figure["recovery_inconclusive"]:
        return f"{figure['recovery_inconclusive']} of {runs} open"
    return "right" if is_right else "wrong"


def judge(case, over_runs):
    """The cells of the table, and all verdicts."""
    runs = over_runs["runs"]
    figure = over_runs if case.is_judged_by_rate() else over_runs["response_mean"]
    detection = judge_detection(case, figure, runs)
    verdicts = [detection]
    drop = over_runs["drop"]
    verdicts.append("right" if is_near(drop, case.drop(), 0.02) else "wrong")
    cells = [f"{100 * case.drop():.1f} %", said(drop, " %", 100.0), verdicts[-1], said(figure["detected_s"], " s"), detection]
    if not case.has_effect:
        return cells + [""] * 6, verdicts
    verdicts.append(judge_recovery(case, figure, runs) if detection == "right" else "open")
    early, late = case.back_s()
    told = f"{early:.2f}" if late - early < 0.005 else f"{early:.2f} to {late:.2f}"
    cells += [f"{told} s", said(figure["recovered_s"], " s"), verdicts[-1]]
    wait = over_runs["excess_wait_s"]
    wait_verdict = "open" if wait is None else "right" if is_near(wait, case.wait_s(), 0.1 * case.wait_s()) else "wrong"
    verdicts.append(wait_verdict)
    return cells + [f"{case.wait_s():.1f} s", said(wait, " s"), wait_verdict], verdicts


COLUMNS = ["experiment", "drop told", "measured", "", "detected after", "", "over after, told", "measured", "",
           "excess wait, told", "measured", ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brunt", type=pathlib.Path)
    parser.add_argument("server", type=pathlib.Path)
    parser.add_argument("--only", action="append", help="only experiments whose name contains this")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the results in this folder")
    parser.add_argument("--record", type=pathlib.Path, help="append the experiments' intervals and truths to this file")
    parser.add_argument("--machine", default="idle", help="what else runs on the machine, for --record")
    arguments = parser.parse_args()
    only = arguments.only or [""]
    cases = [case for case in CASES if any(part in case.name for part in only)]
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    count = dict.fromkeys(["right", "wrong", "open"], 0)
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases:
            folder = (arguments.keep or pathlib.Path(scratch)) / case.name.replace(" ", "-").replace(",", "").replace("%", "percent")
            folder.mkdir(parents=True)
            cells, verdicts = judge(case, measure(arguments.brunt, arguments.server, case, folder))
            print(f"| {case.name} | {' | '.join(cells)} |", flush=True)
            if arguments.record:
                with arguments.record.open("a") as file:
                    print(record(arguments.brunt, case, folder / "results", arguments.machine), file=file)
            for verdict in verdicts:
                count[verdict if verdict in count else "open"] += 1
    print(", ".join(f"{number} {verdict}" for verdict, number in count.items()), file=sys.stderr)
    sys.exit(count["wrong"] > 0)


if __name__ == "__main__":
    main()
