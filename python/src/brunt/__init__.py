"""Opens Brunt results and traces as pyarrow tables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pyarrow.dataset import field

from ._distinct import Distinct
from ._errors import BruntError, NeedsPackage, NotBrunt, VersionError
from ._latencies import Latencies
from ._results import Results
from ._tables import NoSuchTable
from ._trace import Trace

__all__ = [
    "BruntError",
    "Distinct",
    "Latencies",
    "NeedsPackage",
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

_Mergeable = TypeVar("_Mergeable", Latencies, Distinct)


def merged(all_of: Iterable[_Mergeable]) -> _Mergeable:
    """Merges latencies or numbers of distinct things. Raises ValueError if there are none."""
    parts = list(all_of)
    if not parts:
        raise ValueError("nothing to merge")
    whole = type(parts[0])()
    for part in parts:
        whole.merge(part)
    return whole


def open(path: str | os.PathLike[str]) -> Results | Trace:
    """Opens a results folder or a trace folder.

    Raises NotBrunt if the folder is neither, and VersionError if another version of Brunt wrote it. `open_results` and
    `open_trace` are for programs that know which one it is; their types are more precise.
    """
    folder = Path(path)
    for kind in (Results, Trace):
        if kind.is_in(folder):
            return kind(folder)
    raise NotBrunt(f"{folder} contains neither results (summary.json) nor a trace (trace/part-*.parquet)")


def open_results(path: str | os.PathLike[str]) -> Results:
    """Opens a results folder."""
    return Results(Path(path))


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Opens a trace folder."""
    return Trace(Path(path))
