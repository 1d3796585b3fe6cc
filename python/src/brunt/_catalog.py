"""The catalog of a lake: which parts are live. docs/lake.md describes it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

from ._errors import VersionError

FORMAT = 1


class Catalog:
    """The newest version of a lake, or a folder that is not a lake. Its parts stay on disk as long as this object lives."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._version: dict[str, Any] = {}
        self._lock: int | None = None
        while True:
            versions = _versions(folder)
            path = versions[-1] if versions else folder
            try:
                self._lock = _shared(path)
            except FileNotFoundError:
                if not versions:
                    return
                continue
            # A compaction may have continued, and deleted the file, before it was locked.
            if os.fstat(self._lock).st_nlink > 0 and (versions or not _versions(folder)):
                break
            os.close(self._lock)
            self._lock = None
        if versions:
            self._version = json.loads(path.read_text())
            found = self._version.get("format")
            if found != FORMAT:
                raise VersionError(f"{path} is a catalog of format {found}; this package reads format {FORMAT}")

    def __del__(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def parts(self, table: str) -> list[Path]:
        """The compacted parts of a table, by time."""
        parts = self._version.get("parts", {}).get(table, [])
        # Tables that are not divided by time have no hours.
        return [self._folder / part["path"] for part in sorted(parts, key=lambda part: (part["hour"] or 0, part["path"]))]

    def has_absorbed(self, table: str, series: int, number: int, part: Path) -> bool:
        """Whether the rows of a captured part are in compacted parts."""
        for tap in self._version.get("taps", []):
            if tap["name"] == "":
                absorbed = tap["absorbed"].get(table, {}).get(str(series))
                is_left_out = part.relative_to(self._folder).as_posix() in tap["left_out"]
                return absorbed is not None and number < absorbed["next"] and not is_left_out
        return False


def _versions(folder: Path) -> list[Path]:
    return sorted((folder / "_catalog").glob("v*.json"))


def _shared(path: Path) -> int:
    """A descriptor that holds a shared lock on a file or folder until it is closed."""
    descriptor = os.open(path, os.O_RDONLY)
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor
