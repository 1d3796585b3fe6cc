"""Asks an engine one question for `brunt sql`.

What to ask comes as JSON on standard input. On standard output come lines of JSON: the engine's version, then the rows.
The exit status says why there is no answer; standard error says it in words.
"""

import json
import logging
import os
import socket
import sys
import tempfile

MISSING, REFUSED, UNREACHABLE = 10, 11, 12


def fail(status, message):
    print(message, file=sys.stderr)
    sys.exit(status)


def answer(row):
    print(json.dumps(row, default=lambda value: value.hex() if isinstance(value, (bytes, bytearray)) else str(value)))


def bytes_read():
    """What this process has read with system calls. Versions 1.5.5 and 1.5.6 of DuckDB count far too few themselves."""
    with open("/proc/self/io") as counters:
        return int(counters.readline().split()[1])


def load_httpfs(connection):
    """Object stores: the extension of PyPI, where it is installed for this version, or else DuckDB's own way."""
    import duckdb

    try:
        import duckdb_extension_httpfs

        folder = os.path.join(os.path.dirname(duckdb_extension_httpfs.__file__), "extensions", "v" + duckdb.__version__)
        path = os.path.join(folder, "httpfs.duckdb_extension").replace("'", "''")
        connection.execute(f"LOAD '{path}'")
    except (ImportError, duckdb.Error):
        connection.execute("INSTALL httpfs")
        connection.execute("LOAD httpfs")


def ask_duckdb(request):
    try:
        import duckdb
    except ImportError as error:
        fail(MISSING, error)
    connection = duckdb.connect()
    try:
        answer({"version": duckdb.__version__})
        if request["secret"]:
            load_httpfs(connection)
            connection.execute(request["secret"])
        read_before = bytes_read()
        for statement in request["preparation"]:
            connection.execute(statement)
        if request["explain"]:
            for name, plan in connection.execute(request["statement"]).fetchall():
                answer({name: plan})
            answer({"bytes_read": bytes_read() - read_before})
            return
        # Its own JSON: no value passes through a Python type that holds less.
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            quoted = path.replace("'", "''")
            connection.execute(f"COPY (\n{request['statement']}\n) TO '{quoted}' (FORMAT json)")
            with open(path) as rows:
                sys.stdout.writelines(rows)
    except duckdb.Error as error:
        fail(REFUSED, error)


def address(at):
    """The server's host and port, and its address as the client wants it."""
    remote = at if at.startswith("sc://") else f"sc://{at}"
    host = remote[len("sc://") :].split("/")[0]
    name, _, port = host.rpartition(":")
    if not port.isdecimal():
        name, port = host, "15002"
    return name.strip("[]"), int(port), remote


def nanos_of(session, part, column, unsupported):
    """Expressions for a time of this column: in nanoseconds since 1970, and as a timestamp."""
    quoted = f"`{column}`"
    try:
        kind = dict(session.read.parquet(part).dtypes)[column]
    except unsupported:
        # Sail computes with nanoseconds but has no type for them in an answer.
        nanos = f"unix_timestamp({quoted}) * 1000000000 + CAST(date_format({quoted}, 'SSSSSSSSS') AS BIGINT)"
        return nanos, f"CAST({quoted} AS TIMESTAMP)"
    if kind != "bigint":
        fail(REFUSED, f"the engine reads times as {kind}, which is not what they are stored as: nanoseconds")
    return quoted, f"timestamp_micros({quoted} DIV 1000)"


def rows_of(session, group, view, unsupported):
    """A statement for the rows of parts that are read in the same way, through a view of them."""
    columns, twins = [], []
    for column, is_time, absent in group["columns"]:
        if not is_time:
            columns.append(absent or f"`{column}`")
            continue
        if absent:
            time, nanos = absent, "CAST(NULL AS BIGINT)"
        elif group["has_twins"]:
            # As they are stored: by them an engine leaves parts out, by what it computes it does not.
            nanos = f"`{column}_ns`"
            time = f"timestamp_micros({nanos} DIV 1000) AS `{column}`"
        else:
            nanos, time = nanos_of(session, group["parts"][0], column, unsupported)
            time = f"{time} AS `{column}`"
        columns.append(time)
        twins.append(f"{nanos} AS `{column}_ns`")
    # Files are named one by one: what their folders are called means nothing here.
    reader = session.read.option("mergeSchema", "true") if group["differ"] else session.read
    reader.parquet(*group["parts"]).createOrReplaceTempView(view)
    return f"SELECT {', '.join(columns + twins)} FROM {view}"


def ask_spark(request):
    try:
        from pyspark.errors import PySparkException, UnsupportedOperationException
        from pyspark.sql import SparkSession
    except ImportError as error:
        fail(MISSING, error)
    logging.disable(logging.CRITICAL)
    host, port, remote = address(request["at"])
    try:
        # The client itself would try for minutes.
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        fail(UNREACHABLE, f"{host}:{port}: {error}")
    try:
        session = SparkSession.builder.remote(remote).getOrCreate()
        answer({"version": session.version})
        # Spark gives times in nanoseconds as numbers, or not at all.
        session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        session.conf.set("spark.sql.session.timeZone", "UTC")
        for table in request["tables"]:
            name = table["name"]
            rows = [
                rows_of(session, group, f"stored_{index}_{name}", UnsupportedOperationException)
                for index, group in enumerate(table["groups"])
            ]
            session.sql(" UNION ALL ".join(rows) or table["no_rows"]).createOrReplaceTempView(name)
        for row in session.sql(request["statement"]).collect():
            answer(row.asDict(recursive=True))
    except PySparkException as error:
        fail(REFUSED, str(error).split("\n\nJVM stacktrace")[0])


{"duckdb": ask_duckdb, "spark": ask_spark}[sys.argv[1]](json.load(sys.stdin))
