"""Queries the Delta Lake logs of a lake with one engine, for tools/table-formats.sh; and the parts listed in its catalog,
without a log, which must give the same answers.

    table-formats.py ENGINE LAKE      duckdb, spark or sail; prints one line of JSON for each query

The answers must be the same, byte for byte, in each engine, so they are only integers and strings.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from delta_engines import rows_of, rows_of_parts

QUESTIONS = {
    "rows": "SELECT count(*), count(latency_ns), sum(latency_ns), sum(record_id) FROM operations",
    "times": "SELECT min(request_first_ns), max(request_first_ns), sum(request_first_ns % 1000) FROM operations",
    "texts": "SELECT operation, count(*), sum(moved_bytes) FROM operations GROUP BY operation ORDER BY operation",
    "truth": "SELECT count(*) FROM operations WHERE request_whole",
    "pruned": "SELECT count(*), min(record_id), max(record_id) FROM operations WHERE request_first_ns < {middle}",
    "joined": "SELECT f.source, count(*) FROM operations o JOIN flows f ON o.flow = f.flow"
    " GROUP BY f.source ORDER BY f.source",
    "packets": "SELECT count(*), sum(wire_bytes), min(time_ns), max(time_ns) FROM packets",
}


def main():
    ask = rows_of(sys.argv[1], sys.argv[2])
    # The middle of the time range.
    [(middle,)] = ask("SELECT CAST(min(request_first_ns) / 2 + max(request_first_ns) / 2 AS BIGINT) FROM operations")
    middle = middle // 1_000_000 * 1_000_000
    answers = {name: ask(question.format(middle=middle)) for name, question in QUESTIONS.items()}
    # The same queries on views of the parts.
    ask = rows_of_parts(sys.argv[1], sys.argv[2])
    for name, question in QUESTIONS.items():
        rows = ask(question.format(middle=middle))
        assert rows == answers[name], f"{name}: {answers[name]} by the log, {rows} by the catalog"
        print(json.dumps([name, [[value if isinstance(value, str) else int(value) for value in row] for row in rows]]))
    sys.stdout.flush()
    # A server in this process ends with it.
    os._exit(0)


main()
