#!/usr/bin/env python3
"""Measures what a transport costs: throughput and processor time per byte, by block size (Figure 2 of "A Performance
Analysis of the iSCSI Protocol").

    transport-costs.py BRUNT [OUT]     runs examples/iscsi-figure-2.toml into OUT (default: a new folder in /tmp), then
                                       the Linux kernel's initiator on our target; prints a table for each
    transport-costs.py OUT             prints the table for existing results

Processor time is in seconds per gigabyte of payload: of the worker with the initiator, of the target's process, and of the
whole machine, which includes the kernel's threads and interrupts and anything else that runs. On loopback, the kernel does
much of the receiver's work in the sender's time. Our ends poll for up to 50 us before they sleep, which is included.

The kernel's initiator runs in QEMU (tools/kernel-initiator.sh --prepare), where the processor is emulated: its throughput
and its processor time are those of the emulation, and only the target's are real. If that isn't prepared, it is left out,
with a message. GUEST_SECONDS is the duration of each of its measurements (default 2).
"""
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Student's t for 95 %, by degrees of freedom.
STUDENT = [12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]
WORKLOADS = ["sequential-read", "sequential-write", "half-random"]
# The script of eight readers or writers in the guest, each with its own range of the disk.
GUEST = """set -e
iscsid
iscsiadm -m node -T "$NAME" -p 10.0.2.2:$PORT -o new >/dev/null
iscsiadm -m node -T "$NAME" -p 10.0.2.2:$PORT --login >/dev/null
for i in $(seq 300); do [ -b /dev/sda ] && break; sleep .1; done
# CPU time in ticks of 10 ms, excluding idle time and waiting for the disk.
busy() { awk '/^cpu / { printf "%.0f\\n", $2 + $3 + $4 + $7 + $8 }' /proc/stat; }
done_bytes() { awk -v way=$1 '$3 == "sda" { printf "%.0f\\n", (way == "read" ? $6 : $10) * 512 }' /proc/diskstats; }
for run in $(seq $RUNS); do
  for way in read write; do
    for size in $SIZES; do
      for part in 0 1 2 3 4 5 6 7; do
        if [ $way = read ]; then from=/dev/sda to=/dev/null skip=skip flag=iflag; else from=/dev/zero to=/dev/sda skip=seek flag=oflag; fi
        (while :; do dd if=$from of=$to bs=$size $skip=$((part * 33554432 / size)) count=$((33554432 / size)) $flag=direct conv=notrunc 2>/dev/null || exit; done) &
        eval pid$part=$!
      done
      sleep .5
      b=$(busy) d=$(done_bytes $way)
      echo "begin $way $size"
      sleep $SECONDS_EACH
      echo "end $way $size $(( $(done_bytes $way) - d )) $(( $(busy) - b ))"
      kill $pid0 $pid1 $pid2 $pid3 $pid4 $pid5 $pid6 $pid7
      killall dd 2>/dev/null || :
      wait
    done
  done
done
iscsiadm -m node -T "$NAME" -p 10.0.2.2:$PORT --logout >/dev/null
"""


def interval(values):
    """The mean, and half of its 95 % interval."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, STUDENT[min(len(values) - 2, len(STUDENT) - 1)] * deviation / math.sqrt(len(values))


def shown(values):
    """Mean and interval with as many digits as are useful."""
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    mean, half = interval(values)
    digits = max(0, 1 - math.floor(math.log10(abs(mean)))) if mean else 0
    return f"{mean:,.{digits}f}" + ("" if math.isnan(half) else f" ± {half:,.{digits}f}")


def table(title, rows):
    """Prints rows of a name, a workload, a size, and lists of values by run."""
    print(f"\n{title}\n")
    print("| transport | requests | block | MB/s | initiator, CPU s/GB | target | machine |")
    print("|---|---|---|---:|---:|---:|---:|")
    for name, workload, size, *figures in rows:
        print(f"| {name} | {workload} | {size} | " + " | ".join(shown(values) for values in figures) + " |")


def results(folder):
    """Prints the table for an experiment's results; returns the block sizes."""
    summary = json.loads((folder / "summary.json").read_text())
    cores = os.cpu_count() or 1
    rows = []
    for point in summary["points"]:
        runs = [run for run in point["runs"] if run["bytes_per_second"] > 0]
        hosts = [run.get("probes", {}).get("hosts", {}).get("local", {}) for run in runs]
        name = point["target"]
        each = lambda value: [value(run, host) for run, host in zip(runs, hosts)]

        def share(key, times=1):
            """Busy cores per gigabyte per second; `None` if they weren't sampled."""
            of = lambda run, host: host[key] * times / run["bytes_per_second"] * 1e9 if key in host else None
            return each(of)

        rows.append((
            name, point["workload"], point["axes"]["block_size"],
            each(lambda run, _: run["bytes_per_second"] / 1e6),
            each(lambda run, _: run["cost_per_request"]["cpu_ns"] * run["requests_per_second"] / run["bytes_per_second"]),
            share(f"process.{name}.total_cpus"),
            share("cpu.busy_share", cores),
        ))
    rows.sort(key=lambda row: WORKLOADS.index(row[1]))
    runs = summary["experiment"]["repetitions"]
    table(f"Means of {runs} runs with 95 % intervals.", rows)
    return [size for size in dict.fromkeys(row[2] for row in rows)]


def spent(pid):
    """Processor time in nanoseconds of all threads of a process (proc(5), schedstat)."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass  # it has just ended
    return total


def guest(brunt, runs=4):
    """Measures the Linux kernel's initiator in the same way."""
    tool = ROOT / "tools/kernel-initiator.sh"
    if subprocess.run(["bash", tool, "--ready"]).returncode != 0:
        print("\nleft out: the kernel's initiator (tools/kernel-initiator.sh --prepare)")
        return
    sizes = [2048, 16384, 65536, 131072]
    seconds = os.environ.get("GUEST_SECONDS", "2")
    name = "iqn.2026-11.io.brunt:transports"
    target = subprocess.Popen([brunt, "target", "--lun", "null:256MiB", "--portal", "127.0.0.1:0", "--name", name],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        port = target.stdout.readline().strip().rsplit(":", 1)[1]
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as script:
            script.write(f'NAME={name} PORT={port} RUNS={runs} SECONDS_EACH={seconds} SIZES="{" ".join(map(str, sizes))}"\n' + GUEST)
            script.flush()
            environment = {**os.environ, "BRUNT_GUEST_SECONDS": "600"}
            boot = subprocess.Popen(["bash", tool, script.name], stdout=subprocess.PIPE, text=True, env=environment)
            found, before = {}, 0
            for line in boot.stdout:
                words = line.split()
                if words[:1] == ["begin"]:
                    before = spent(target.pid)
                elif words[:1] == ["end"]:
                    way, size, moved, ticks = words[1], *map(int, words[2:])
                    if moved > 0:
                        found.setdefault((way, size), []).append(
                            (moved / float(seconds) / 1e6, ticks / 100 / moved * 1e9, (spent(target.pid) - before) / moved))
                else:
                    print(line, end="", file=sys.stderr)
            if boot.wait() != 0 or len(found) != 2 * len(sizes):
                sys.exit("transport-costs.py: the guest did not measure everything")
        rows = [("kernel's initiator, emulated", way, f"{size >> 10}k", *map(list, zip(*runs)), [])
                for (way, size), runs in found.items()]
        table(f"Linux' initiator in QEMU, eight sequential readers or writers, {runs} runs of {seconds} s: what is in its "
              "column and in MB/s is the emulation's.", rows)
    finally:
        target.send_signal(signal.SIGTERM)
        target.wait()


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    first = pathlib.Path(sys.argv[1]).resolve()
    if first.is_dir():
        results(first)
        return
    out = pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else tempfile.mkdtemp(prefix="transport-costs."))
    subprocess.run([first, "run", ROOT / "examples/iscsi-figure-2.toml", "--out", out], check=True, stdout=sys.stderr)
    results(out)
    guest(first)
    print(f"\nthe results are in {out}", file=sys.stderr)


main()
