"""How many different things there were, by the sketches of the table sketches, which merge."""

from __future__ import annotations

from typing import Any

from ._errors import NeedsPackage

WHATS = ("blocks_read", "blocks_written", "files")
"""What the table counts."""

_LOG_REGISTERS = 12


class Distinct:
    """A number of different things, estimated from HyperLogLog sketches that were merged.

    Of up to some thousand it is as good as exact. Beyond it the standard error is 1.6 %. Needs Apache's `datasketches`:
    `pip install 'brunt[sketches]'`.
    """

    def __init__(self) -> None:
        self._apache = _apache()
        self._union = self._apache.hll_union(_LOG_REGISTERS)

    def add(self, sketch: bytes) -> None:
        """Adds the sketch of a row of the table. Raises ValueError where it is none."""
        try:
            self._union.update(self._apache.hll_sketch.deserialize(sketch))
        except (RuntimeError, ValueError, IndexError) as error:
            raise ValueError(f"{len(sketch)} bytes are no HyperLogLog sketch: {error}") from error

    def merge(self, other: Distinct) -> None:
        """Counts what is in the other one, too: what is in both counts once."""
        self._union.update(other._union.get_result(self._apache.tgt_hll_type.HLL_8))

    @property
    def estimate(self) -> float:
        """About how many."""
        return float(self._union.get_estimate())

    def interval(self, standard_deviations: int = 2) -> tuple[float, float]:
        """Bounds that have the true number in 68.3, 95.4 or 99.7 of 100 cases: 1, 2 or 3 standard deviations."""
        if standard_deviations not in (1, 2, 3):
            raise ValueError(f"bounds are of 1, 2 or 3 standard deviations, not {standard_deviations}")
        low, high = self._union.get_lower_bound(standard_deviations), self._union.get_upper_bound(standard_deviations)
        return float(low), float(high)

    def sketch(self) -> bytes:
        """All that were merged as one sketch of Apache DataSketches, as the table has them."""
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
