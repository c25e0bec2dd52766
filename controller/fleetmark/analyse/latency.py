"""Latency distributions: buckets are added over hosts and repeats, percentiles never averaged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetmark.tables.schema import Row
from fleetmark_agent import histogram

PERCENTS = (50.0, 95.0, 99.0, 99.9)
_CURVE = (1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.995, 99.999)


@dataclass(frozen=True)
class CurvePoint:
    """`percent` of the operations took at most `latency_us`."""

    percent: float
    latency_us: float


def merged(rows: Iterable[Row]) -> histogram.Sparse:
    """Add the buckets of rows of the table histograms."""
    return histogram.merge({row["bucket"]: row["count"]} for row in rows)


def percentiles_us(
    counts: histogram.Sparse, highest_us: float, percents: Sequence[float] = PERCENTS
) -> list[float]:
    """Percentiles of a histogram, none above the largest value that was seen.

    Empty for an empty histogram.
    """
    if not histogram.count_of(counts):
        return []
    return [min(histogram.percentile_us(counts, p), highest_us) for p in percents]


def curve(counts: histogram.Sparse, highest_us: float) -> list[CurvePoint]:
    """The distribution as a curve, as far out as the number of values carries it.

    A percentile is left out when fewer than one value lies above it; the maximum ends the
    curve, at the place of the last value.
    """
    total = histogram.count_of(counts)
    percents = [p for p in _CURVE if total * (100.0 - p) / 100.0 >= 1.0]
    points = [
        CurvePoint(p, value)
        for p, value in zip(percents, percentiles_us(counts, highest_us, percents), strict=False)
    ]
    if total:
        points.append(CurvePoint(100.0 * (1.0 - 0.5 / total), highest_us))
    return points
