"""Passes on the output of `cargo test`, and writes two files: the slowest tests (seconds, test, executable), and the failed
tests (one name per line).

    cargo test ... 2>&1 | python3 .ci/times.py SLOWEST FAILED

Stable Rust's test harness reports no times, but it starts tests in the order of their names, as many at a time as there are
threads, and prints a line when one ends. So the first tests start at once, and each of the others when one has ended. The
time that a test waits for another one (`support::alone`, `support::busy`) is included.
"""

import os
import re
import sys
import time

SHOWN = 20
END = re.compile(r"test (.+?)(?: - should panic(?:.*?))? \.\.\. (ok|FAILED|ignored)(?: \(([\d.]+) s\))?")


def durations(begin, ends, threads):
    """Seconds of each test of an executable, from the times at which the tests ended."""
    waiting = sorted(ends)
    started = {name: begin for name in waiting[:threads]}
    for at, name in zip(sorted(ends.values()), waiting[threads:]):
        started[name] = at
    return [(ends[name] - started[name], name) for name in waiting]


def main():
    threads = int(os.environ.get("RUST_TEST_THREADS") or len(os.sched_getaffinity(0)))
    found, failed, executable, begin, ends = [], [], "", 0.0, {}

    def finish():
        found.extend((seconds, name, executable) for seconds, name in durations(begin, ends, threads))
        ends.clear()

    for line in iter(sys.stdin.buffer.readline, b""):
        now = time.monotonic()
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        text = line.decode(errors="replace").strip()
        if text.startswith(("Running ", "Doc-tests ")):
            finish()
            executable = text.split(" (")[-1].rstrip(")").rsplit("/", 1)[-1]
        elif re.fullmatch(r"running \d+ tests?", text):
            finish()
            begin = now
        elif match := END.match(text):
            name, result, seconds = match.groups()
            if result == "FAILED":
                failed.append(name)
            if seconds:
                found.append((float(seconds), name, executable))
            else:
                ends[name] = now
    finish()
    with open(sys.argv[1], "w") as file:
        for seconds, name, executable in sorted(found, reverse=True)[:SHOWN]:
            print(f"{seconds:7.1f} s  {name} ({executable})", file=file)
    with open(sys.argv[2], "w") as file:
        for name in failed:
            print(name, file=file)


if __name__ == "__main__":
    main()
