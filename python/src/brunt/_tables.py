"""Tables as folders of Parquet files, each file a complete part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.dataset

from ._catalog import Catalog
from ._errors import BruntError

_PART = re.compile(r"part-(?:(\d+)-)?(\d+)\.parquet")


class NoSuchTable(BruntError, KeyError):
    """The folder has no table of that name."""

    def __str__(self) -> str:
        return str(self.args[0])


class Tables:
    """A folder of tables."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._catalog = Catalog(folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    def tables(self) -> list[str]:
        """Names of the tables that have parts."""
        folders = (entry for entry in self.path.iterdir() if entry.is_dir())
        return sorted(folder.name for folder in folders if self._parts(folder.name))

    def parts(self, name: str) -> list[Path]:
        """The live parts of a table: compacted parts by time, then captured parts by series, oldest first."""
        parts = self._parts(name)
        if not parts:
            raise NoSuchTable(f"{self.path} has no table {name!r}; it has {', '.join(self.tables())}")
        return parts

    def _parts(self, name: str) -> list[Path]:
        captured = [part for series, number, part in _captured(self.path / name)
                    if not self._catalog.has_absorbed(name, series, number, part)]
        return self._catalog.parts(name) + captured

    def dataset(self, name: str) -> Any:
        """A table as a pyarrow Dataset; nothing is read yet."""
        parts = [str(part) for part in self.parts(name)]
        schema = pyarrow.dataset.dataset(parts[0], format="parquet").schema
        # Lake parts also have their times as integers, and captured parts don't, so these columns are left out.
        times = {f"{column.name}_ns" for column in schema if pyarrow.types.is_timestamp(column.type)}
        schema = pyarrow.schema([column for column in schema if column.name not in times])
        return pyarrow.dataset.dataset(parts, format="parquet", schema=schema)

    def table(self, name: str, columns: Sequence[str] | None = None, condition: Any = None) -> Any:
        """A table as a pyarrow Table: all columns or these, and all rows or those that meet the condition."""
        names = None if columns is None else list(columns)
        return self.dataset(name).to_table(columns=names, filter=condition)


def _captured(folder: Path) -> list[tuple[int, int, Path]]:
    found = []
    if folder.is_dir():
        for entry in folder.iterdir():
            if match := _PART.fullmatch(entry.name):
                found.append((int(match[1] or 0), int(match[2]), entry))
    return sorted(found)
