"""Estimates numbers of distinct things from the sketches in the table `sketches`, which can be merged."""

from __future__ import annotations

from typing import Any

from ._errors import NeedsPackage

WHATS = ("blocks_read", "blocks_written", "files")
"""The kinds of things that the table counts."""

_LOG_REGISTERS = 12


class Distinct:
    """A number of distinct things, estimated from merged HyperLogLog sketches.

    Up to some thousand things, it is practically exact; beyond that, the standard error is 1.6 %. Needs Apache's
    `datasketches`: `pip install 'brunt[sketches]'`.
    """

    def __init__(self) -> None:
        self._apache = _apache()
        self._union = self._apache.hll_union(_LOG_REGISTERS)

    def add(self, sketch: bytes) -> None:
        """Adds the sketch in a row of the table. Raises ValueError if it is not a sketch."""
        try:
            self._union.update(self._apache.hll_sketch.deserialize(sketch))
        except (RuntimeError, ValueError, IndexError) as error:
            raise ValueError(f"{len(sketch)} bytes are not a HyperLogLog sketch: {error}") from error

    def merge(self, other: Distinct) -> None:
        """Adds the things in another one; those in both count once."""
        self._union.update(other._union.get_result(self._apache.tgt_hll_type.HLL_8))

    @property
    def estimate(self) -> float:
        """The estimated number."""
        return float(self._union.get_estimate())

    def interval(self, standard_deviations: int = 2) -> tuple[float, float]:
        """Bounds that contain the true number in 68.3, 95.4 or 99.7 of 100 cases: 1, 2 or 3 standard deviations."""
        if standard_deviations not in (1, 2, 3):
            raise ValueError(f"bounds are at 1, 2 or 3 standard deviations, not {standard_deviations}")
        low, high = self._union.get_lower_bound(standard_deviations), self._union.get_upper_bound(standard_deviations)
        return float(low), float(high)

    def sketch(self) -> bytes:
        """The merged sketch, as bytes of Apache DataSketches, like those in the table."""
        return bytes(self._union.get_result(self._apache.tgt_hll_type.HLL_8).serialize_updatable())

    def __repr__(self) -> str:
        low, high = self.interval()
        return f"Distinct(about {self.estimate:.0f}: {low:.0f} to {high:.0f})"


def _apache() -> Any:
    try:
        import datasketches
    except ModuleNotFoundError as error:
        raise NeedsPackage("sketches need the package datasketches: pip install 'brunt[sketches]'") from error
    return datasketches
