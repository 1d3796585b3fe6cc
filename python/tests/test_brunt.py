"""The package on what a real `brunt` writes. BRUNT names the program, TESTDATA the folder with captures."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

import datasketches
import pyarrow
import pyarrow.compute
import pyarrow.parquet

import brunt

EXPERIMENT = """
name = "small"
repetitions = 2
[targets.nothing]
url = "null:1GiB"
[workloads.mixed]
blocks = [{ size = "4k" }]
read = 0.5
stop = { requests = 1000 }
[sweep]
queue_depth = [1, 4]
"""


def run(*arguments: str | Path) -> Any:
    out = subprocess.run([os.environ["BRUNT"], "--json", *arguments], capture_output=True, text=True)
    if out.returncode != 0:
        raise AssertionError(f"{arguments}: {out.stderr}")
    return json.loads(out.stdout)


class Folder(unittest.TestCase):
    folder: Path
    results: Path
    trace: Path
    report: dict[str, Any]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        experiment = cls.folder / "small.toml"
        experiment.write_text(EXPERIMENT)
        cls.results, cls.trace = cls.folder / "small.results", cls.folder / "trace"
        run("run", experiment, "--out", cls.results)
        capture = Path(os.environ["TESTDATA"]) / "nfs3-small.pcap.zst"
        run("capture", "-r", capture, "--out", cls.trace, "--workers", "2")
        cls.report = run("analyze", cls.trace)


class LakeTest(Folder):
    def test_a_lake_is_read_like_its_trace(self) -> None:
        compacted, lake = self.folder / "compacted", self.folder / "lake"
        shutil.copytree(self.trace, compacted)
        held = brunt.open_trace(compacted)
        before = {name: held.table(name).num_rows for name in held.tables()}
        run("lake", "compact", compacted)
        # What was opened before stays readable, and is the same.
        self.assertEqual({name: held.table(name).num_rows for name in before}, before)
        trace = brunt.open_trace(compacted)
        self.assertTrue(all("date=" in str(part) for part in trace.parts("operations")))
        self.assertEqual({name: trace.table(name).num_rows for name in before}, before)
        names = brunt.open_trace(self.trace).table("operations").column_names
        self.assertEqual(trace.table("operations").column_names, names)
        self.assertEqual(trace.ledger(), brunt.open_trace(self.trace).ledger())
        for tap in ("one", "two"):
            run("lake", "add", lake, self.trace, "--tap", tap, "--duplicate")
        twice = brunt.open_trace(lake)
        self.assertEqual({name: twice.table(name).num_rows for name in before}, {name: 2 * rows for name, rows in before.items()})
        self.assertEqual(twice.ledger()["packets"], 2 * trace.ledger()["packets"])
        ids = twice.table("operations", ["record_id"])["record_id"]
        self.assertEqual(len(pyarrow.compute.unique(ids)), len(ids))


class ResultsTest(Folder):
    def test_runs_are_those_of_the_summary(self) -> None:
        results = brunt.open(self.results)
        assert isinstance(results, brunt.Results)
        runs = results.runs().to_pylist()
        self.assertEqual([row["run"] for row in runs], [0, 1, 2, 3])
        self.assertTrue(all(row["complete"] for row in runs))
        self.assertEqual(results.points().num_rows, len(results.summary["points"]))
        self.assertEqual(results.runs(["seed"], brunt.field("run") == 2).to_pylist(), [{"seed": runs[2]["seed"]}])

    def test_every_table_opens(self) -> None:
        results = brunt.open_results(self.results)
        for name in results.tables():
            self.assertEqual(results.table(name).num_rows, results.dataset(name).count_rows())
            if name not in ("environment", "replay"):
                self.assertEqual(getattr(results, name)(), results.table(name))

    def test_what_is_not_there_is_said(self) -> None:
        with self.assertRaisesRegex(brunt.NoSuchTable, "no table 'nonsense'; it has axes, "):
            brunt.open(self.results).table("nonsense")
        with self.assertRaisesRegex(brunt.NotBrunt, "neither results"):
            brunt.open(self.folder)
        older = self.folder / "older.results"
        older.mkdir()
        (older / "summary.json").write_text('{"format": 1}')
        with self.assertRaisesRegex(brunt.VersionError, "format 1"):
            brunt.open(older)


class TransfersTest(unittest.TestCase):
    """Whoever is asked, the same operations count as transfers."""

    def test_all_answers_are_equal(self) -> None:
        captures = ("nfs3-small", "nfs3-stale", "nfs4-small", "iscsi/tgt-qemu", "iscsi/lio-libiscsi")
        left_out = 0
        for name in captures:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                left_out += self.check(name, Path(folder))
        self.assertGreater(left_out, 1000)

    def check(self, name: str, folder: Path) -> int:
        base = Path(os.environ["TESTDATA"]) / name
        capture = next(path for end in (".pcap.zst", ".pcapng.zst") if (path := Path(f"{base}{end}")).exists())
        trace, page = folder / "trace", folder / "page.html"
        run("capture", "-r", capture, "--out", trace)
        report = run("analyze", capture, "--html", page)["profile"]
        self.assertEqual(run("analyze", trace)["profile"], report)
        table = brunt.open_trace(trace).transfers(["direction", "moved_bytes"])
        html = page.read_text()
        info = run("trace", "info", trace)
        sql = self.sql(trace)
        requests = 0
        for direction, way in enumerate(("read", "write")):
            rows = table.filter(pyarrow.compute.equal(table["direction"], direction))
            count, moved = report[way]["operations"], report[way]["bytes"]
            self.assertEqual((rows.num_rows, pyarrow.compute.sum(rows["moved_bytes"]).as_py() or 0), (count, moved), way)
            shown = re.search(f'<th class="" scope="row">{way}</th><td class="num">([0-9,]+)</td>', html)
            assert shown is not None
            self.assertEqual(int(shown[1].replace(",", "")), count, way)
            requests += count
            if sql is not None:
                self.assertEqual((sql[f"{way}_operations"], sql[f"{way}_bytes"]), (count, moved), way)
        # Without the size of a block, SCSI's addresses are not known: such requests are counted as damaged.
        found = sum(info["ops"].get(way, {"requests": 0})["requests"] for way in ("read", "write"))
        self.assertEqual(found - info["repeated"] + info["damaged"], requests)
        left_out = report["left_out"]
        if sql is not None:
            self.assertEqual({reason: sql[f"left_out_{reason}"] for reason in left_out}, left_out)
        return sum(left_out.values())

    def sql(self, trace: Path) -> Any:
        """The analysis `profile` in DuckDB, where there is one."""
        if "BRUNT_DUCKDB" not in os.environ:
            return None
        return run("sql", trace, "profile")["rows"][0]


class TraceTest(Folder):
    def test_operations_are_those_of_the_report(self) -> None:
        trace = brunt.open(self.trace)
        assert isinstance(trace, brunt.Trace)
        self.assertEqual(trace.operations().num_rows, self.report["operations"])
        for row in self.report["by_operation"]:
            condition = brunt.field("operation") == row["name"]
            latencies = trace.operations(["latency_ns"], condition)["latency_ns"]
            self.assertEqual(len(latencies), row["calls"])
            self.assertEqual(len(latencies) - latencies.null_count, row["replies"])
        self.assertEqual(trace.ledger(), self.report["ledger"])
        self.assertFalse(trace.is_anonymous)

    def test_exact_quantiles_are_within_the_bounds(self) -> None:
        trace = brunt.open_trace(self.trace)
        for row in self.report["by_operation"]:
            operations = trace.operations(["latency_ns"], brunt.field("operation") == row["name"])
            exact = sorted(latency for latency in operations["latency_ns"].to_pylist() if latency is not None)
            latencies = trace.latencies(procedure=row["name"])
            for share in (0.5, 0.9, 0.99) if exact else ():
                quantile = exact[math.ceil(share * len(exact)) - 1]
                bounds = latencies.bounds(share)
                assert bounds is not None and bounds[1] is not None
                self.assertTrue(bounds[0] <= quantile <= bounds[1], (row["name"], share, quantile, bounds))
        longest = brunt.Latencies()
        self.assertIsNone(longest.bounds(0.5))
        longest.add(215)
        self.assertEqual(longest.bounds(0.5), (15 * 1024 << 25, None))

    def test_latencies_are_those_of_the_report(self) -> None:
        trace = brunt.open_trace(self.trace)
        for client in self.report["clients"]["top"]:
            latencies = trace.latencies(client=client["name"])
            for name, share in (("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99)):
                self.assertEqual(latencies.quantile(share), client["latency"][name], name)
        parts = [trace.latencies(procedure=row["name"]) for row in self.report["by_operation"]]
        self.assertEqual(brunt.merged(parts).counts, trace.latencies().counts)
        self.assertEqual([part.count for part in parts], [row["replies"] for row in self.report["by_operation"]])
        self.assertIsNone(brunt.Latencies().quantile(0.5))
        self.assertEqual(trace.latencies(seconds=(0, 1)).count, 0)
        with self.assertRaises(ValueError):
            brunt.Latencies().add(216)

    def test_few_different_things_are_counted_exactly(self) -> None:
        trace = brunt.open_trace(self.trace)
        exact: dict[str, dict[str, set[int]]] = {what: {} for what in ("blocks_read", "blocks_written", "files")}
        clients = {row["flow"]: row["source"] for row in trace.flows().to_pylist()}
        for row in trace.operations(["flow", "file", "direction", "offset_bytes", "moved_bytes"]).to_pylist():
            if row["file"] is None:
                continue
            client = clients[row["flow"]]
            exact["files"].setdefault(client, set()).add(row["file"])
            if row["direction"] is not None and row["moved_bytes"]:
                what = "blocks_written" if row["direction"] else "blocks_read"
                first, last = row["offset_bytes"] // 4096, (row["offset_bytes"] + row["moved_bytes"] - 1) // 4096
                exact[what].setdefault(client, set()).update(row["file"] + block for block in range(first, last + 1))
        for what, by_client in exact.items():
            whole = set().union(*by_client.values())
            self.assertGreater(len(whole), 0, what)
            self.assertEqual(round(trace.distinct(what).estimate), len(whole), what)
            parts = [trace.distinct(what, client=client) for client in by_client]
            self.assertEqual([round(part.estimate) for part in parts], [len(things) for things in by_client.values()], what)
            self.assertEqual(round(brunt.merged(parts).estimate), len(whole), what)
        self.assertEqual(trace.distinct("files", minutes=(0, 1)).estimate, 0)
        with self.assertRaisesRegex(ValueError, "blocks_read, blocks_written, files, not of 'blocks'"):
            trace.distinct("blocks")

    def test_many_different_things_are_within_their_bounds(self) -> None:
        # Three minutes of files, most of which are in two of them, and one of the last in none before.
        minutes = [range(60_000), range(30_000, 99_990), range(99_980, 100_000)]
        sketches = []
        for files in minutes:
            sketch = datasketches.hll_sketch(12, datasketches.tgt_hll_type.HLL_8)
            for file in files:
                sketch.update(file)
            sketches.append(sketch.serialize_updatable())
        rows = {"minute": [0, 1, 2], "server": ["s", "s", "t"], "client": ["c"] * 3, "what": ["files"] * 3, "sketch": sketches}
        many = self.folder / "many"
        shutil.copytree(self.trace / "trace", many / "trace")
        (many / "sketches").mkdir()
        pyarrow.parquet.write_table(pyarrow.table(rows), many / "sketches" / "part-000000.parquet")
        trace = brunt.open_trace(many)
        for distinct, exact in (
            (trace.distinct("files"), 100_000),
            (trace.distinct("files", server="s"), 99_990),
            (trace.distinct("files", minutes=(1, 3)), 70_000),
            (brunt.merged(trace.distinct("files", minutes=(minute, minute + 1)) for minute in range(3)), 100_000),
        ):
            low, high = distinct.interval(3)
            self.assertTrue(low <= exact <= high < 1.08 * exact, (low, exact, high))
            self.assertTrue(low < distinct.interval()[0] < distinct.estimate < distinct.interval()[1] < high)
            again = brunt.Distinct()
            again.add(distinct.sketch())
            self.assertEqual(round(again.estimate), round(distinct.estimate))
        self.assertEqual(round(trace.distinct("files", server="t").estimate), 20)
        with self.assertRaisesRegex(ValueError, "no HyperLogLog sketch"):
            brunt.Distinct().add(b"nonsense")
        with self.assertRaisesRegex(ValueError, "1, 2 or 3"):
            trace.distinct("files").interval(4)

    def test_without_datasketches_the_package_is_named(self) -> None:
        with unittest.mock.patch.dict(sys.modules, {"datasketches": None}):
            with self.assertRaisesRegex(brunt.NeedsPackage, r"pip install 'brunt\[sketches\]'"):
                brunt.open_trace(self.trace).distinct("files")

    def test_versions_are_not_mixed(self) -> None:
        mixed = self.folder / "mixed"
        shutil.copytree(self.trace / "trace", mixed / "trace")
        older = pyarrow.table({"version": [3], "program": ["brunt 0.0.9"], "anonymous": [False]})
        pyarrow.parquet.write_table(older, mixed / "trace" / "part-1-000000.parquet")
        with self.assertRaisesRegex(brunt.VersionError, r"version 3 \(by brunt 0.0.9\) and version 4"):
            brunt.open(mixed)

    def test_a_sample_of_this_version_opens(self) -> None:
        samples = Path(os.environ["TESTDATA"]) / "traces"
        trace = brunt.open_trace(samples / f"v{brunt._trace.VERSION}")
        self.assertEqual(trace.program, "brunt 0.1.0")
        rows = {name: trace.table(name).num_rows for name in trace.tables()}
        for name, expected in (("operations", 205), ("packets", 581), ("names", 51), ("entries", 173), ("checksums", 295)):
            self.assertEqual(rows[name], expected, name)
        self.assertEqual(trace.ledger()["calls_answered"], 165)
        self.assertEqual(trace.latencies().count, 165)
        self.assertEqual(pyarrow.compute.sum(trace.operations(["moved_bytes"])["moved_bytes"]).as_py(), 196610)

    def test_programs_may_be_mixed(self) -> None:
        mixed = self.folder / "programs"
        shutil.copytree(self.trace, mixed)
        other = pyarrow.table({"version": [4], "program": ["brunt 9.9.9"], "anonymous": [False]})
        pyarrow.parquet.write_table(other, mixed / "trace" / "part-1-000000.parquet")
        self.assertEqual(brunt.open_trace(mixed).latencies().counts, brunt.open_trace(self.trace).latencies().counts)


if __name__ == "__main__":
    unittest.main()
