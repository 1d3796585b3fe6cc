"""Engines that read the Delta Lake logs of a lake (`brunt lake manifest`), for tools/table-formats.py and tools/lake-scale.py.

`rows_of(ENGINE, LAKE)` opens duckdb, spark or sail, with the lake's tables as views, and returns a function from queries to
rows. `rows_of_parts` does the same without a log, from the list in the lake's catalog. Spark gets its jars from $DELTA_JARS
and its master from $SPARK_MASTER; Sail starts in this process, as a cluster of workers if SAIL_MODE says so.
"""

import glob
import json
import os

TABLES = ("operations", "flows", "packets")
SERVERS = []


def duckdb_rows(lake):
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    import duckdb_extension_delta

    [extension] = glob.glob(os.path.dirname(duckdb_extension_delta.__file__) + "/extensions/*/*.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")
    for table in TABLES:
        connection.execute(f"CREATE VIEW {table} AS FROM delta_scan('{lake}/{table}')")
    return lambda question: connection.execute(question).fetchall()


def spark_rows(lake, session):
    for table in TABLES:
        session.read.format("delta").load(f"{lake}/{table}").createOrReplaceTempView(table)
    return lambda question: [tuple(row) for row in session.sql(question).collect()]


def parts_of(lake, table):
    """A table's parts in the newest version of a lake's catalog."""
    newest = max(glob.glob(f"{glob.escape(lake)}/_catalog/v*.json"))
    with open(newest) as catalog:
        return [f"{lake}/{part['path']}" for part in json.load(catalog)["parts"][table]]


def rows_of_parts(engine, lake):
    lake = os.path.abspath(lake)
    if engine == "duckdb":
        import duckdb

        connection = duckdb.connect()
        for table in TABLES:
            # Folders are named like columns.
            connection.read_parquet(parts_of(lake, table), hive_partitioning=False).create_view(table)
        return lambda question: connection.execute(question).fetchall()
    session = {"spark": open_spark, "sail": open_sail}[engine]()
    # Spark has no type for nanoseconds; their twin columns are integers anyway.
    session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")
    for table in TABLES:
        session.read.parquet(*parts_of(lake, table)).createOrReplaceTempView(table)
    return lambda question: [tuple(row) for row in session.sql(question).collect()]


def open_spark():
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(os.environ.get("SPARK_MASTER", "local[2]"))
        .config("spark.jars", os.environ["DELTA_JARS"])
        .config("spark.ui.enabled", "false")
        # Enough for the state of a small log.
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )


def open_sail():
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer()
    # Keep a reference: the server ends when it is no longer referenced.
    SERVERS.append(server)
    server.start()
    _, port = server.listening_address
    return SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()


def rows_of(engine, lake):
    lake = os.path.abspath(lake)
    if engine == "duckdb":
        return duckdb_rows(lake)
    return spark_rows(lake, {"spark": open_spark, "sail": open_sail}[engine]())
