"""Measures the time that an engine takes for queries on lakes of several sizes, for tools/lake-scale.sh.

    lake-scale.py ENGINE FILE FROM_NS LAKE…   duckdb, spark or sail; one line of JSON for each lake and query

The pruned query is for one file in ten seconds; the scan reads two columns of every operation. Each runs three times: the
first includes reading what isn't in the page cache yet. `answer` is a digest of the rows, the same for all engines; `bytes`
are those read by this process, so they include engines that run in it: DuckDB and Sail, not Spark's executors.
"""

import hashlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from delta_engines import rows_of

QUESTIONS = {
    "pruned": "SELECT count(*), sum(moved_bytes) FROM operations WHERE file = {file}"
    " AND request_first_ns >= {from_ns} AND request_first_ns < {from_ns} + 10000000000",
    "scan": "SELECT operation, count(*), sum(latency_ns) FROM operations GROUP BY operation ORDER BY operation",
}


def bytes_read():
    """Bytes that this process has read with system calls: engines that run in it have no reliable count of their own."""
    with open("/proc/self/io") as io:
        return int(io.readline().split()[1])


def main():
    engine, file, from_ns, *lakes = sys.argv[1:]
    for lake in lakes:
        ask = rows_of(engine, lake)
        for name, question in QUESTIONS.items():
            question = question.format(file=file, from_ns=from_ns)
            seconds, read = [], []
            for _ in range(3):
                begun, bytes_before = time.monotonic(), bytes_read()
                rows = ask(question)
                seconds.append(round(time.monotonic() - begun, 3))
                read.append(bytes_read() - bytes_before)
            rows = [[value if isinstance(value, str) or value is None else int(value) for value in row] for row in rows]
            answer = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]
            found = {"engine": engine, "lake": os.path.basename(lake), "question": name, "seconds": seconds, "bytes": read}
            print(json.dumps(found | {"rows": len(rows), "answer": answer}), flush=True)
    # A server in this process ends with it.
    os._exit(0)


main()
