"""Log-linear latency histogram shared by the load frame, the agent and the tables.

A value of v microseconds falls into the bucket given by the binary exponent of v and the first
five bits of its mantissa: 32 buckets an octave, from 1 us to 2**32 us (71 minutes), 1,024 in all.
A bucket is at most 1/32 wide relative to its lower bound, so a percentile read from its middle
is off by at most 1.6 %. The idea is HdrHistogram's; taking the bits of the double directly
lets the Lua frame find a bucket with one shift.

Histograms of several threads, hosts or seconds are merged by adding counts, never by averaging
percentiles.
"""

import math
import struct
from typing import Dict, Iterable, List, Mapping, Tuple

SUB_BUCKET_BITS = 5
SUB_BUCKETS = 1 << SUB_BUCKET_BITS
OCTAVES = 32
BUCKETS = SUB_BUCKETS * OCTAVES

_HIGH_WORD_SHIFT = 20 - SUB_BUCKET_BITS
_BIAS = 1023 << SUB_BUCKET_BITS

Sparse = Dict[int, int]
"""A histogram: bucket index -> count, buckets without a count left out."""


def bucket_of(value_us: float) -> int:
    """The bucket of a latency in microseconds; values below 1 us fall into bucket 0."""
    if not value_us >= 1.0:
        return 0
    high_word = struct.unpack(">I", struct.pack(">d", value_us)[:4])[0]
    index = int(high_word >> _HIGH_WORD_SHIFT) - _BIAS
    return index if index < BUCKETS else BUCKETS - 1


def lower_bound_us(bucket: int) -> float:
    """The smallest latency in microseconds that falls into a bucket."""
    octave, sub = divmod(bucket, SUB_BUCKETS)
    return math.ldexp(1.0 + sub / SUB_BUCKETS, octave)


def upper_bound_us(bucket: int) -> float:
    """The smallest latency in microseconds that falls into the next bucket."""
    return lower_bound_us(bucket + 1)


def merge(histograms: Iterable[Mapping[int, int]]) -> Sparse:
    """Add histograms bucket by bucket."""
    total: Sparse = {}
    for histogram in histograms:
        for bucket, count in histogram.items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def count_of(histogram: Mapping[int, int]) -> int:
    """How many values a histogram holds."""
    return sum(histogram.values())


def percentile_us(histogram: Mapping[int, int], percent: float) -> float:
    """The latency in microseconds that `percent` of the values do not exceed.

    Nearest-rank definition (the ceil(percent/100 * n)-th smallest value), answered with the
    middle of its bucket. NaN for an empty histogram. Raises ValueError outside 0..100.
    """
    if not 0.0 <= percent <= 100.0:
        raise ValueError("percent must be between 0 and 100, not %r" % percent)
    total = count_of(histogram)
    if total == 0:
        return math.nan
    rank = max(1, math.ceil(total * percent / 100.0 - 1e-9))
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= rank:
            return (lower_bound_us(bucket) + upper_bound_us(bucket)) / 2.0
    raise AssertionError("rank beyond the histogram's count")


def highest_us(histogram: Mapping[int, int]) -> float:
    """Upper bound of the highest bucket in use, in microseconds; 0 for an empty histogram."""
    used = [bucket for bucket, count in histogram.items() if count]
    return upper_bound_us(max(used)) if used else 0.0


def to_pairs(histogram: Mapping[int, int]) -> List[Tuple[int, int]]:
    """The wire form: (bucket, count) pairs in bucket order, empty buckets left out."""
    return [(bucket, histogram[bucket]) for bucket in sorted(histogram) if histogram[bucket]]


def from_pairs(pairs: Iterable[Iterable[int]]) -> Sparse:
    """Read the wire form. Raises ValueError on a bucket or a count out of range."""
    histogram: Sparse = {}
    for bucket, count in pairs:
        if not 0 <= bucket < BUCKETS or count < 0:
            raise ValueError("not a histogram entry: bucket %r, count %r" % (bucket, count))
        histogram[int(bucket)] = histogram.get(int(bucket), 0) + int(count)
    return histogram
