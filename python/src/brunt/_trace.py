"""Traces of `brunt capture --out`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset

from ._distinct import WHATS, Distinct
from ._latencies import Latencies
from ._errors import NotBrunt, VersionError
from ._tables import Tables

VERSION = 4


class Trace(Tables):
    """A trace: the tables that docs/trace.md describes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not self.is_in(folder):
            raise NotBrunt(f"{folder} contains no trace: it has no part of the table trace")
        notes = self.table("trace").to_pylist()
        versions = sorted({(row["version"], row["program"]) for row in notes})
        # Several programs may have written one version.
        if {version for version, _ in versions} != {VERSION}:
            found = " and ".join(f"version {version} (by {program})" for version, program in versions)
            raise VersionError(f"{folder} has a trace of {found or 'no version'}; this package reads version {VERSION}")
        self.program: str = versions[0][1]
        """The program that wrote the trace."""
        self.is_anonymous: bool = any(row["anonymous"] for row in notes)
        """Whether names, addresses and ids are pseudonyms."""

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has a trace."""
        return any((folder / "trace").glob("part-*.parquet"))

    def operations(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """One row for each request with its reply, as completions were seen; `record_id` has the order of requests."""
        return self.table("operations", columns, condition)

    def transfers(self, columns: Sequence[str] | None = None) -> Any:
        """READs and WRITEs that moved data: those whose reply reports success. The others failed, or their success was not
        captured; `brunt analyze` and the rest of Brunt leave them out of amounts, too."""
        field = pyarrow.dataset.field
        return self.operations(columns, field("direction").is_valid() & (field("status") == 0))

    def packets(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """One row for each packet."""
        return self.table("packets", columns, condition)

    def flows(self) -> Any:
        """Pairs of clients and servers."""
        return self.table("flows")

    def ledger(self) -> dict[str, int]:
        """Counters of what was seen and lost: the last row of the table `statistics`; in a lake, the sum over its taps."""
        rows = self.table("statistics").to_pylist()
        order = ("time", "packets", "calls", "calls_open_at_end", "trace_rows_lost")
        last: dict[int, dict[str, Any]] = {}
        for row in rows:
            tap = row.pop("tap", None) or 0
            if tap not in last or tuple(row[name] for name in order) >= tuple(last[tap][name] for name in order):
                last[tap] = row
        names = [name for name in rows[0] if name != "time"] if rows else []
        # Counters that an older program didn't have are null.
        return {name: sum(row[name] or 0 for row in last.values()) for name in names}

    def latencies(
        self,
        *,
        server: str | None = None,
        client: str | None = None,
        procedure: str | None = None,
        seconds: tuple[int, int] | None = None,
    ) -> Latencies:
        """Latencies of requests to a server, from a client, of an operation, sent in these seconds since 1970 (excluding the
        second of the two); without arguments, of all requests."""
        condition = _condition({"server": server, "client": client, "procedure": procedure}, "second", seconds)
        rows = self.table("latency_histograms", ["bucket", "count"], condition)
        latencies = Latencies()
        for bucket, count in zip(rows["bucket"].to_pylist(), rows["count"].to_pylist(), strict=True):
            latencies.add(bucket, count)
        return latencies

    def distinct(
        self,
        what: str,
        *,
        server: str | None = None,
        client: str | None = None,
        minutes: tuple[int, int] | None = None,
    ) -> Distinct:
        """The number of distinct things of a kind (`blocks_read`, `blocks_written`: of 4,096 bytes; `files`) that requests
        used: to a server, from a client, sent in these minutes since 1970 (excluding the second of the two); without these
        arguments, of all requests. Raises NoSuchTable for a trace that was written before there were sketches."""
        if what not in WHATS:
            raise ValueError(f"sketches are of {', '.join(WHATS)}, not of {what!r}")
        distinct = Distinct()
        condition = _condition({"what": what, "server": server, "client": client}, "minute", minutes)
        for sketch in self.table("sketches", ["sketch"], condition)["sketch"].to_pylist():
            distinct.add(sketch)
        return distinct


def _condition(values: dict[str, str | None], time: str, span: tuple[int, int] | None) -> Any:
    """The condition that columns have these values, if given, and that a time is in a span; None if nothing is given."""
    field = pyarrow.dataset.field
    conditions = [field(name) == value for name, value in values.items() if value is not None]
    if span is not None:
        conditions += [field(time) >= span[0], field(time) < span[1]]
    condition = None
    for one in conditions:
        condition = one if condition is None else condition & one
    return condition
