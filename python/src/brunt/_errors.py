"""What this package raises."""

from __future__ import annotations


class BruntError(Exception):
    """What this package raises."""


class NotBrunt(BruntError):
    """There is nothing of Brunt in the folder."""


class NeedsPackage(BruntError, ImportError):
    """It needs a package that is not installed."""


class VersionError(BruntError):
    """Another version of Brunt wrote it."""
