"""Latencies in the buckets of the table `latency_histograms`, which can be merged exactly."""

from __future__ import annotations

import math
from fractions import Fraction

_UNIT_NS = 1024
_STEPS = 8
_BUCKETS = 216


class Latencies:
    """A distribution of latencies. Quantiles are off by at most 6.25 % or half a microsecond."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """Requests by bucket."""

    def add(self, bucket: int, count: int = 1) -> None:
        """Adds a row of the table."""
        if not 0 <= bucket < _BUCKETS or count < 0:
            raise ValueError(f"bucket {bucket} with {count} requests is not a row of latency_histograms")
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def merge(self, other: Latencies) -> None:
        """Adds the latencies of another distribution, exactly."""
        for bucket, count in other.counts.items():
            self.add(bucket, count)

    @property
    def count(self) -> int:
        """Number of requests."""
        return sum(self.counts.values())

    def quantile(self, share: float) -> int | None:
        """The latency in nanoseconds that this share of the requests does not exceed: the middle of its bucket. None if there
        are no requests."""
        bucket = self._bucket_of(share)
        return None if bucket is None else bucket_middle_ns(bucket)

    def bounds(self, share: float) -> tuple[int, int | None] | None:
        """The bounds in nanoseconds of the exact quantile: its bucket, both ends included. None if there are no requests.

        The upper bound is None in the last bucket, which has no upper end. The table `operations` has the exact quantile."""
        bucket = self._bucket_of(share)
        if bucket is None:
            return None
        low, width = _bucket_units(bucket)
        return low * _UNIT_NS, None if bucket == _BUCKETS - 1 else (low + width) * _UNIT_NS - 1

    def _bucket_of(self, share: float) -> int | None:
        if not 0 <= share <= 1:
            raise ValueError(f"a share must be from 0 to 1, not {share}")
        # Exact: 0.999 is the fraction 999/1000 here, not the double next to it.
        rank = max(math.ceil(Fraction(share).limit_denominator(10**9) * self.count), 1)
        up_to = 0
        for bucket in sorted(self.counts):
            up_to += self.counts[bucket]
            if up_to >= rank:
                return bucket
        return None

    def __repr__(self) -> str:
        return f"Latencies({self.count} requests)"


def bucket_middle_ns(bucket: int) -> int:
    """The middle of a bucket."""
    low, width = _bucket_units(bucket)
    return low * _UNIT_NS + width * _UNIT_NS // 2


def _bucket_units(bucket: int) -> tuple[int, int]:
    """The start and the width of a bucket, in units."""
    octave, step = divmod(bucket, _STEPS)
    return (step, 1) if octave == 0 else ((_STEPS + step) << (octave - 1), 1 << (octave - 1))
