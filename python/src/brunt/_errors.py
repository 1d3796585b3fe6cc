"""The errors that this package raises."""

from __future__ import annotations


class BruntError(Exception):
    """The base class of the errors that this package raises."""


class NotBrunt(BruntError):
    """The folder contains neither results nor a trace of Brunt."""


class NeedsPackage(BruntError, ImportError):
    """A required package is not installed."""


class VersionError(BruntError):
    """Another version of Brunt wrote the folder."""
