"""Prometheus' cumulative buckets from our 1,024 log-linear ones.

The bounds are 10 us x {1, 1.5} x 2**k, from 10 us to 10.5 s: two an octave. Each is a bound of
our own histogram too, so no count has to be split and the cumulative counts are exact.
"""

from collections.abc import Mapping

from fleetmark_agent.histogram import bucket_of, lower_bound_us, upper_bound_us

BOUNDS_US: tuple[float, ...] = tuple(
    10.0 * factor * 2**octave for octave in range(21) for factor in (1.0, 1.5)
)[:-1]
_FIRST_BEYOND = tuple(bucket_of(bound) for bound in BOUNDS_US)


def cumulative(histogram: Mapping[int, int]) -> list[tuple[str, int]]:
    """(upper bound in seconds as a label, values below it), ending with +Inf."""
    rows: list[tuple[str, int]] = []
    used = sorted(histogram)
    seen = position = 0
    for bound_us, first_beyond in zip(BOUNDS_US, _FIRST_BEYOND, strict=True):
        while position < len(used) and used[position] < first_beyond:
            seen += histogram[used[position]]
            position += 1
        rows.append((repr(bound_us / 1e6), seen))
    rows.append(("+Inf", seen + sum(histogram[bucket] for bucket in used[position:])))
    return rows


def sum_seconds(histogram: Mapping[int, int]) -> float:
    """The sum of all values in seconds, each taken as the middle of its bucket.

    Off by at most 1.6 %, and never falling while counts are added: a sum that went back when
    the exact one arrives at the end of a step would look like a restarted counter.
    """
    total_us = sum(
        count * (lower_bound_us(bucket) + upper_bound_us(bucket)) / 2.0
        for bucket, count in histogram.items()
    )
    return total_us / 1e6
