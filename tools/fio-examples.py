#!/usr/bin/env python3
"""Reports which fio job files of a folder `brunt import-fio` imports, and because of which option it refuses the others.

    tools/fio-examples.py BRUNT FOLDER [--fio FIO] [--json]

FOLDER: for example `examples` of fio's sources. Prints a line for each file: `imports`, or `refused`, the option that is
the cause, and the reason. At the end: totals by option. With --fio, also whether that fio accepts the file (`fio
--parse-only`), and if not, its message. Changes no file and sends no request. Variables that fio's own examples take from
the environment have the values given in their comments, unless they are already set.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

# Variables of job files that are templates: `bs=${FIO_BS}`.
VARIABLES = {"FIO_BS": "4096", "FIO_RW": "randread", "FIO_IODEPTH": "1", "uri": "nbd://localhost"}


def environment():
    return {**VARIABLES, **os.environ}


def imported(brunt, path):
    """Brunt's answer: outcome, option, reason."""
    done = subprocess.run([brunt, "import-fio", path.name], cwd=path.parent, env=environment(),
                          capture_output=True, text=True)
    if done.returncode == 0:
        return "imports", "", ""
    said = done.stderr.strip().splitlines()
    line = said[0] if said else f"exit status {done.returncode}"
    found = re.match(rf"brunt import-fio: {re.escape(path.name)}(?::\d+)?: (?:([\w-]+)(?:=\S*)?|\[[^]]*\]): (.*)", line)
    if done.returncode != 2 or not found:
        return "failed", "", line
    return "refused", found[1] or "size", found[2]


def taken(fio, path):
    """Why fio refuses the file; empty if it doesn't."""
    done = subprocess.run([fio, "--parse-only", path.name], cwd=path.parent, env=environment(),
                          capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    return said[0].strip() if said else f"exit status {done.returncode}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("brunt", type=pathlib.Path)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--fio", type=pathlib.Path)
    arguments.add_argument("--json", action="store_true")
    options = arguments.parse_args()
    files = sorted(options.folder.glob("*.fio"))
    if not files:
        sys.exit(f"{options.folder}: there are no job files (*.fio)")
    brunt = options.brunt.resolve()
    rows = []
    for path in files:
        outcome, option, why = imported(brunt, path)
        row = {"file": path.name, "outcome": outcome, "option": option, "why": why}
        if options.fio:
            row["fio"] = taken(options.fio.resolve(), path)
        rows.append(row)
    counts = collections.Counter(row["option"] for row in rows if row["outcome"] == "refused")
    imports = sum(row["outcome"] == "imports" for row in rows)
    failed = [row for row in rows if row["outcome"] == "failed"]
    if options.json:
        print(json.dumps({"files": rows, "imported": imports, "refused": counts}, indent=1))
    else:
        width = max(len(row["file"]) for row in rows)
        for row in rows:
            says = f"   fio: {row['fio']}" if row.get("fio") else ""
            print(f"{row['file']:{width}}  {row['outcome']:8} {row['option']:20} {row['why']}{says}".rstrip())
        print(f"\n{len(rows)} job files: {imports} import, {sum(counts.values())} are refused")
        for option, count in counts.most_common():
            print(f"{count:6}  {option}")
    sys.exit(f"{len(failed)} failed without naming an option" if failed else 0)


main()
