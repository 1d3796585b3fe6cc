"""Asks an engine one query for `brunt sql`.

The query comes as JSON on standard input. The answer is written to a Parquet file; standard output has lines of JSON:
the engine's version, and the plan if requested. The exit status says why there is no answer, with a message on standard
error.
"""

import json
import logging
import os
import signal
import socket
import sys

MISSING, REFUSED, UNREACHABLE = 10, 11, 12


def fail(status, message):
    print(message, file=sys.stderr)
    sys.exit(status)


def say(what):
    print(json.dumps(what))


def bytes_read():
    """Bytes that this process has read with system calls: the counts of DuckDB 1.5.5 and 1.5.6 are far too low."""
    with open("/proc/self/io") as counters:
        return int(counters.readline().split()[1])


def load_httpfs(connection):
    """Loads the extension for object stores: PyPI's if it is installed for this version, otherwise DuckDB's own."""
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
        say({"version": duckdb.__version__})
        if request["secret"]:
            load_httpfs(connection)
            connection.execute(request["secret"])
        read_before = bytes_read()
        for statement in request["preparation"]:
            connection.execute(statement)
        if request["plan"]:
            for name, plan in connection.execute(request["plan"]).fetchall():
                say({name: plan})
            say({"bytes_read": bytes_read() - read_before})
            return
        (statement,) = connection.execute(request["copy"]).fetchone()
        connection.execute(statement)
    except duckdb.Error as error:
        fail(REFUSED, error)


def address(at):
    """The server's host and port, and its address in the client's form."""
    remote = at if at.startswith("sc://") else f"sc://{at}"
    host = remote[len("sc://") :].split("/")[0]
    name, _, port = host.rpartition(":")
    if not port.isdecimal():
        name, port = host, "15002"
    return name.strip("[]"), int(port), remote


def nanos_of(session, part, column, unsupported):
    """Expressions for a time column: in nanoseconds since 1970, and as a timestamp."""
    quoted = f"`{column}`"
    try:
        kind = dict(session.read.parquet(part).dtypes)[column]
    except unsupported:
        # Sail can compute with nanoseconds but has no type in which to return them.
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
            # Use the stored column, because an engine can skip parts by a stored column, but not by a computed one.
            nanos = f"`{column}_ns`"
            time = f"timestamp_micros({nanos} DIV 1000) AS `{column}`"
        else:
            nanos, time = nanos_of(session, group["parts"][0], column, unsupported)
            time = f"{time} AS `{column}`"
        columns.append(time)
        twins.append(f"{nanos} AS `{column}_ns`")
    # Files are listed individually: the names of their folders have no meaning here.
    reader = session.read.option("mergeSchema", "true") if group["differ"] else session.read
    reader.parquet(*group["parts"]).createOrReplaceTempView(view)
    return f"SELECT {', '.join(columns + twins)} FROM {view}"


def with_names_once(table):
    """The same table with unique column names: like DuckDB, adds numbers to repeated ones."""
    names = []
    for name in table.column_names:
        unique, number = name, 0
        while unique in names:
            number += 1
            unique = f"{name}_{number}"
        names.append(unique)
    return table.rename_columns(names)


def ask_spark(request):
    try:
        import pyarrow.parquet
        from pyspark.errors import PySparkException, UnsupportedOperationException
        from pyspark.sql import SparkSession
    except ImportError as error:
        fail(MISSING, error)
    logging.disable(logging.CRITICAL)
    host, port, remote = address(request["at"])
    try:
        # The client itself would retry for minutes.
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        fail(UNREACHABLE, f"{host}:{port}: {error}")
    try:
        session = SparkSession.builder.remote(remote).getOrCreate()
        say({"version": session.version})
        # Spark returns nanosecond times as numbers, or not at all.
        session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
        session.conf.set("spark.sql.session.timeZone", "UTC")
        for table in request["tables"]:
            name = table["name"]
            rows = [
                rows_of(session, group, f"stored_{index}_{name}", UnsupportedOperationException)
                for index, group in enumerate(table["groups"])
            ]
            session.sql(" UNION ALL ".join(rows) or table["no_rows"]).createOrReplaceTempView(name)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            table = session.sql(request["statement"]).toArrow()
        except SystemExit:
            # Without this, the server would continue the query.
            session.interruptAll()
            raise
        pyarrow.parquet.write_table(with_names_once(table), request["rows"], compression="zstd")
    except PySparkException as error:
        fail(REFUSED, str(error).split("\n\nJVM stacktrace")[0])


{"duckdb": ask_duckdb, "spark": ask_spark}[sys.argv[1]](json.load(sys.stdin))
