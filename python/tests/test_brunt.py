"""Tests the package on what a real `brunt` writes. BRUNT is the program, TESTDATA the folder with captures."""

import collections
import html
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
        # A trace that was opened earlier stays readable and unchanged.
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

    def test_an_unfinished_result_has_its_finished_runs(self) -> None:
        killed = self.folder / "killed.results"
        killed.mkdir()
        whole = brunt.open_results(self.results).summary
        points = whole["points"]
        (killed / "summary.json").write_text(
            json.dumps(whole | {"complete": False, "points": [point | {"runs": []} for point in points]})
        )
        lines: list[dict[str, Any]] = [{"precision": None}]
        for index, point in enumerate(points):
            lines += [{"points": [{"index": index, "point": point | {"runs": [run]}}]} for run in point["runs"]]
        text = "\n".join(json.dumps(line) for line in lines)
        (killed / "runs.jsonl").write_text(text)
        read = brunt.open_results(killed).summary["points"]
        # The last line has no newline.
        self.assertEqual(read[-1]["runs"], points[-1]["runs"][:-1])
        (killed / "runs.jsonl").write_text(text + "\n")
        self.assertEqual(brunt.open_results(killed).summary["points"], points)

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


class Page:
    """The numbers that a page of `brunt analyze --html` shows, which have three significant digits or are whole."""

    UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "%": 0.01, "": 1}

    def __init__(self, text: str) -> None:
        self.text = text

    def rows(self, caption: str) -> dict[str, dict[str, str]]:
        """The cells of a table, by row and column."""
        table = self.found(f'<caption class="">{caption}</caption>(.*?)</table>')
        head, *rows = [
            [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
            for row in re.findall("<tr>(.*?)</tr>", table)
        ]
        return {row[0]: dict(zip(head, row, strict=True)) for row in rows}

    def fact(self, name: str) -> str:
        """The text next to a name; empty if the name is not on the page."""
        fact = re.search(f"<dt>{name}</dt><dd>(.*?)</dd>", self.text)
        return fact[1] if fact else ""

    def found(self, pattern: str) -> str:
        found = re.search(pattern, self.text, re.DOTALL)
        assert found is not None, pattern
        return found[1]

    @classmethod
    def number(cls, shown: str) -> float:
        """The number of a text such as `1.24 ms`."""
        if shown == "–":
            return 0
        number, _, unit = shown.partition(" ")
        return float(number.replace(",", "")) * cls.UNITS[unit]


class AnswersTest(unittest.TestCase):
    """One question has one answer, from `brunt analyze`, its page, `brunt trace`, `brunt sql` and this package."""

    COLUMNS = ["record_id", "flow", "operation", "file", "direction", "status", "offset_bytes", "asked_bytes", "moved_bytes"]
    COLUMNS += ["latency_ns"]

    folder: Path
    trace: brunt.Trace
    report: dict[str, Any]
    page: Page
    info: dict[str, Any]
    operations: list[dict[str, Any]]
    answers: dict[str, Any]

    def test_one_question_has_one_answer(self) -> None:
        # NFSv3 with retransmissions and unanswered calls, NFSv3 with failed READs, NFSv4.0 to 4.2, and iSCSI with
        # failed commands, with aborted ones, and with unknown addresses.
        captures = ("nfs3-small", "nfs3-stale", "nfs4-small", "iscsi/tgt-kernel", "iscsi/brunt-aborts", "iscsi/lio-libiscsi")
        seen = {"bytes_retransmitted": 0, "calls_aborted": 0, "errors": 0, "failed": 0, "unanswered": 0}
        for name in captures:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                self.open(name, Path(folder))
                for check in (self.kinds, self.amounts, self.left_out, self.duplicates, self.latencies, self.rates):
                    check()
                counted = self.report["ledger"] | self.report["profile"]["left_out"]
                counted["errors"] = sum(row["errors"] for row in self.report["by_operation"])
                seen = {what: count + counted[what] for what, count in seen.items()}
        self.assertTrue(all(seen.values()), seen)

    def open(self, name: str, folder: Path) -> None:
        base = Path(os.environ["TESTDATA"]) / name
        capture = next(path for end in (".pcap.zst", ".pcapng.zst") if (path := Path(f"{base}{end}")).exists())
        self.folder = folder / "trace"
        run("capture", "-r", capture, "--out", self.folder)
        self.report = run("analyze", capture, "--html", folder / "page.html")
        for part in ("profile", "by_operation", "duplicates", "ledger"):
            self.assertEqual(run("analyze", self.folder)[part], self.report[part])
        self.answers = {}
        self.page = Page((folder / "page.html").read_text())
        self.info = run("trace", "info", self.folder)
        self.trace = brunt.open_trace(self.folder)
        clients = {row["flow"]: row["source"] for row in self.trace.flows().to_pylist()}
        operations = self.trace.operations()
        times = operations["request_first"].cast(pyarrow.int64())
        self.operations = operations.select(self.COLUMNS).append_column("request_first_ns", times).to_pylist()
        for row in self.operations:
            row["client"] = clients[row["flow"]]
        self.operations.sort(key=lambda row: row["record_id"])

    def sql(self, question: str) -> Any:
        """The rows of an analysis in DuckDB; None where there is no DuckDB."""
        if "BRUNT_PYTHON" not in os.environ:
            return None
        if question in self.answers:
            return self.answers[question]
        # A program in the PATH might read times in microseconds.
        environment = {name: value for name, value in os.environ.items() if name not in ("PATH", "BRUNT_DUCKDB")}
        with unittest.mock.patch.dict(os.environ, environment, clear=True):
            self.answers[question] = run("sql", self.folder, question)["rows"]
        return self.answers[question]

    def transfers(self, way: str | None = None) -> list[dict[str, Any]]:
        directions = (0, 1) if way is None else (("read", "write").index(way),)
        return [row for row in self.operations if row["direction"] in directions and row["status"] == 0]

    def assert_shown(self, shown: str, exact: float | None) -> None:
        """Checks that a page shows this number: three digits of it, or a dash if there is none."""
        if exact is None:
            self.assertEqual(shown, "–")
            return
        self.assertLessEqual(abs(Page.number(shown) - exact), 0.0051 * exact, shown)

    def kinds(self) -> None:
        """Operations by kind, their replies and errors."""
        reported = self.report["by_operation"]
        expected = {row["name"]: [row["calls"], row["replies"], row["errors"]] for row in reported}
        found = {name: [0, 0, 0] for name in expected}
        for row in self.operations:
            counts = found[row["operation"]]
            counts[0] += 1
            counts[1] += row["latency_ns"] is not None
            counts[2] += row["status"] not in (None, 0)
        self.assertEqual(found, expected)
        rows = self.page.rows("Latency by operation")
        shown = {name: [int(Page.number(row[column])) for column in ("calls", "errors")] for name, row in rows.items()}
        self.assertEqual(shown, {name: [calls, errors] for name, (calls, _, errors) in expected.items()})
        if (sql := self.sql("mix")) is not None:
            self.assertEqual({row["operation"]: [row["calls"], row["replies"], row["errors"]] for row in sql}, expected)

    def amounts(self) -> None:
        """Numbers of transfers, their bytes, and the share of sequential ones."""
        sql = self.sql("profile")
        page = self.page.rows("Reads and writes")
        requests = 0
        ends: dict[tuple[Any, ...], int] = {}
        for way in ("read", "write"):
            sequential, transfers = 0, self.transfers(way)
            for row in transfers:
                place = (row["record_id"] >> 48, row["client"], row["file"], row["direction"])
                offset = row["offset_bytes"] or 0
                sequential += row["file"] is not None and ends.get(place) == offset
                ends[place] = offset + row["moved_bytes"]
            expected = self.report["profile"][way]
            count, moved, share = expected["operations"], expected["bytes"], expected["sequential_share"]
            self.assertEqual((len(transfers), sum(row["moved_bytes"] for row in transfers)), (count, moved), way)
            self.assertEqual(sequential / count if count else None, share, way)
            self.assertEqual(Page.number(page[way]["count"]), count, way)
            self.assert_shown(page[way]["data"], moved)
            self.assert_shown(page[way]["sequential"], share)
            if sql is not None:
                self.assertEqual((sql[0][f"{way}_operations"], sql[0][f"{way}_bytes"]), (count, moved), way)
                self.assertEqual(sql[0][f"{way}_sequential"], sequential, way)
            requests += count
            # A block trace has the requested bytes, which a replay requests again.
            if self.info["damaged"] + self.info["repeated"] == 0:
                asked = sum(row["asked_bytes"] for row in transfers)
                self.assertEqual(self.info["ops"].get(way, {"bytes": 0})["bytes"], asked, way)
        # Without the block size, SCSI addresses are unknown: such requests are counted as damaged.
        found = sum(self.info["ops"].get(way, {"requests": 0})["requests"] for way in ("read", "write"))
        self.assertEqual(found - self.info["repeated"] + self.info["damaged"], requests)

    def left_out(self) -> None:
        """Reads and writes that failed, or whose success is not known."""
        expected = self.report["profile"]["left_out"]
        found = dict.fromkeys(expected, 0)
        for row in self.operations:
            if row["direction"] is not None and row["status"] != 0:
                unseen = "unanswered" if row["latency_ns"] is None else "status_unseen"
                found[unseen if row["status"] is None else "failed"] += 1
        self.assertEqual(found, expected)
        shown = re.findall("[0-9,]+", self.page.fact("Not counted as reads or writes"))
        self.assertEqual(sum(Page.number(number) for number in shown), sum(expected.values()))
        if (sql := self.sql("profile")) is not None:
            self.assertEqual({reason: sql[0][f"left_out_{reason}"] for reason in expected}, expected)

    def duplicates(self) -> None:
        """The share of blocks whose contents also occur elsewhere, which the report estimates."""
        expected = self.report["duplicates"]
        blocks = self.trace.table("checksums").select(["file", "offset_bytes", "write", "sum"])
        placed = blocks.group_by(["file", "offset_bytes", "sum"]).aggregate([]).num_rows
        exact = 1 - len(pyarrow.compute.unique(blocks["sum"])) / placed if placed else None
        written = pyarrow.compute.sum(blocks["write"]).as_py() or 0
        self.assertEqual((len(blocks) - written, written), (expected["blocks_read"], expected["blocks_written"]))
        if exact is None:
            self.assertIsNone(expected["duplicate_share"])
        else:
            self.assertLessEqual(abs(exact - expected["duplicate_share"]), 4 * expected["duplicate_share_error"])
            shown = [Page.number(self.page.fact(f"Blocks {way}")) for way in ("read", "written")]
            self.assertEqual(shown, [len(blocks) - written, written])
            self.assert_shown(self.page.fact("Duplicates"), expected["duplicate_share"])
        if (sql := self.sql("duplicates")) is not None:
            self.assertEqual((sql[0]["blocks_read"], sql[0]["blocks_written"]), (len(blocks) - written, written))
            if exact is None:
                self.assertIsNone(sql[0]["duplicate_share"])
            else:
                self.assertAlmostEqual(sql[0]["duplicate_share"], exact, 12)

    def latencies(self) -> None:
        """Response times of READs, with the error that the report states."""
        (reported,) = (row for row in self.report["by_operation"] if row["name"] in ("READ", "SCSI READ"))
        name, latency = reported["name"], reported["latency"]
        exact = sorted(row["latency_ns"] for row in self.operations if row["operation"] == name and row["latency_ns"] is not None)
        self.assertEqual(len(exact), reported["replies"])
        sql = next((row for row in self.sql("mix") or () if row["operation"] == name), None)
        page = self.page.rows("Latency by operation")[name]
        for share, quantile, column in ((0.5, "p50_ns", "median"), (0.99, "p99_ns", "p99")):
            value = exact[math.ceil(share * len(exact)) - 1]
            # Below 16 us a bucket may be 1,024 ns wide.
            error = max(latency["error_percent"] / 100 * value, 512)
            self.assertLessEqual(abs(latency[quantile] - value), error, quantile)
            self.assert_shown(page[column], latency[quantile])
            bounds = self.trace.latencies(procedure=name).bounds(share)
            assert bounds is not None and bounds[1] is not None
            self.assertTrue(bounds[0] <= value <= bounds[1], (quantile, value, bounds))
            if sql is not None:
                self.assertEqual(sql[quantile], value, quantile)

    def rates(self) -> None:
        """Mean and peak rate of transfers, as sizing tools ask for them."""
        times = sorted(row["request_first_ns"] for row in self.transfers())
        mean = len(times) * 1e9 / (times[-1] - times[0])
        peak = max(collections.Counter(time // 1_000_000_000 for time in times).values())
        found = [sql[0] for sql in [self.sql("sizer")] if sql is not None]
        found.append(run("trace", "fit", self.folder)["sizer"])
        for sizer in found:
            self.assertAlmostEqual(sizer["mean_per_s"] / mean, 1, 9)
            self.assertEqual(sizer["peak_per_s"], peak)


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
        # Files over three minutes: half of the first minute's files recur in the second minute, and half of the third
        # minute's files occur in neither of the others.
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
        with self.assertRaisesRegex(ValueError, "not a HyperLogLog sketch"):
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
