"""Results of `brunt run`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ._errors import NotBrunt, VersionError
from ._tables import Tables

FORMAT = 2


class Results(Tables):
    """A results folder: `summary.json` and the tables that docs/results.md describes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        if not self.is_in(folder):
            raise NotBrunt(f"{folder} contains no results: summary.json is missing")
        found = self.summary.get("format")
        if found != FORMAT:
            raise VersionError(f"{folder} has results of format {found}; this package reads format {FORMAT}")

    @staticmethod
    def is_in(folder: Path) -> bool:
        """Whether a folder has results."""
        return (folder / "summary.json").is_file()

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures of every point and run, as docs/summary-json.md describes them. While an experiment has not
        ended, these are the figures of its finished runs, without estimates over runs."""
        # Read the log first: the program removes it once summary.json has all runs, so in the reverse order, runs
        # could be missing from both.
        try:
            logged = (self.path / "runs.jsonl").read_bytes()
        except FileNotFoundError:
            logged = b""
        summary = json.loads((self.path / "summary.json").read_text())
        if not isinstance(summary, dict):
            raise NotBrunt(f"{self.path / 'summary.json'} does not contain a JSON object")
        if not summary.get("complete"):
            _add_runs(summary, logged)
        return summary

    def points(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """One row for each point of the sweep."""
        return self.table("points", columns, condition)

    def axes(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """The value of each swept key at each point."""
        return self.table("axes", columns, condition)

    def runs(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """One row for each run, with its figures."""
        return self.table("runs", columns, condition)

    def intervals(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """One row for each interval of each run."""
        return self.table("intervals", columns, condition)

    def interval_ops(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """One row for each interval of each run and kind of operation."""
        return self.table("interval_ops", columns, condition)

    def histograms(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Latencies in buckets, by time and kind of operation."""
        return self.table("histograms", columns, condition)

    def requests(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Every request, if the experiment records them."""
        return self.table("requests", columns, condition)

    def probes(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Counters of hosts during runs."""
        return self.table("probes", columns, condition)

    def faults(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Faults with their proofs."""
        return self.table("faults", columns, condition)

    def degradation(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """The effect of each fault on the load."""
        return self.table("degradation", columns, condition)

    def phases(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """The load before, during and after faults."""
        return self.table("phases", columns, condition)

    def indexes(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Indexes of robustness against many clients and link delays, with their intervals."""
        return self.table("indexes", columns, condition)

    def transfer(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Bytes that the links of a lab carried while the load was measured."""
        return self.table("transfer", columns, condition)

    def profiles(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Sampled call stacks, in experiments with a profile."""
        return self.table("profiles", columns, condition)

    def profile_times(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """CPU time of the machine and of each role, in experiments with a profile."""
        return self.table("profile_times", columns, condition)

    def clients(self, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """Figures of each client, in experiments with indexes of robustness."""
        return self.table("clients", columns, condition)


def _add_runs(summary: dict[str, Any], log: bytes) -> None:
    """Adds the runs of `runs.jsonl`, except those that the summary has. A line without a newline is an incomplete run."""
    lines = log.split(b"\n")[1:-1]
    # After a power loss, the end of the last line may have been written without its beginning.
    if lines and b"\0" in lines[-1]:
        lines.pop()
    for line in lines:
        for logged in json.loads(line)["points"]:
            point, known = logged["point"], summary["points"][logged["index"]]["runs"]
            if point["runs"][0]["order"] not in [run["order"] for run in known]:
                summary["points"][logged["index"]] = point | {"runs": known + point["runs"]}
