"""What this package raises."""

from __future__ import annotations


class BruntError(Exception):
    """What this package raises."""


class NotBrunt(BruntError):
    """There is nothing of Brunt in the folder."""


class VersionError(BruntError):
    """Another version of Brunt wrote it."""
