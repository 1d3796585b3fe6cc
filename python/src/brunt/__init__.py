"""Opens results and traces of Brunt as tables of pyarrow."""

from __future__ import annotations

import os
from pathlib import Path

from pyarrow.dataset import field

from ._errors import BruntError, NotBrunt, VersionError
from ._latencies import Latencies, merged
from ._results import Results
from ._tables import NoSuchTable
from ._trace import Trace

__all__ = [
    "BruntError",
    "Latencies",
    "NoSuchTable",
    "NotBrunt",
    "Results",
    "Trace",
    "VersionError",
    "field",
    "merged",
    "open",
    "open_results",
    "open_trace",
]


def open(path: str | os.PathLike[str]) -> Results | Trace:
    """Opens a folder of results or of a trace, whichever it is.

    Raises NotBrunt where there is neither, and VersionError where another version of Brunt wrote it. `open_results` and
    `open_trace` are for programs that know which it is, and tell it type checkers.
    """
    folder = Path(path)
    for kind in (Results, Trace):
        if kind.is_in(folder):
            return kind(folder)
    raise NotBrunt(f"{folder} contains neither results (summary.json) nor a trace (trace/part-*.parquet)")


def open_results(path: str | os.PathLike[str]) -> Results:
    """Opens a folder of results."""
    return Results(Path(path))


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Opens a folder of a trace."""
    return Trace(Path(path))
