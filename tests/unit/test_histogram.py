"""The latency histogram: buckets, percentiles, merging."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetmark_agent import histogram

LATENCIES = st.floats(min_value=1.0, max_value=2.0**31, allow_nan=False)


@given(LATENCIES)
def test_a_value_lies_within_its_bucket(value: float) -> None:
    bucket = histogram.bucket_of(value)
    assert histogram.lower_bound_us(bucket) <= value < histogram.upper_bound_us(bucket)


@given(st.lists(LATENCIES, min_size=1, max_size=200), st.floats(min_value=0, max_value=100))
def test_a_percentile_is_within_half_a_bucket_of_the_exact_one(
    values: list[float], percent: float
) -> None:
    counts: dict[int, int] = {}
    for value in values:
        bucket = histogram.bucket_of(value)
        counts[bucket] = counts.get(bucket, 0) + 1
    rank = max(1, math.ceil(len(values) * percent / 100.0 - 1e-9))
    exact = sorted(values)[rank - 1]
    assert histogram.percentile_us(counts, percent) == pytest.approx(exact, rel=1 / 32)


def test_extremes_are_kept_in_the_outer_buckets() -> None:
    assert histogram.bucket_of(0.0) == 0
    assert histogram.bucket_of(-5.0) == 0
    assert histogram.bucket_of(float("nan")) == 0
    assert histogram.bucket_of(2.0**40) == histogram.BUCKETS - 1
    assert histogram.bucket_of(math.inf) == histogram.BUCKETS - 1


def test_merging_adds_counts_and_percentiles_come_from_the_sum() -> None:
    slow, fast = {histogram.bucket_of(100_000.0): 1}, {histogram.bucket_of(100.0): 99}
    merged = histogram.merge([slow, fast])
    assert histogram.count_of(merged) == 100
    assert histogram.percentile_us(merged, 99) == pytest.approx(100, rel=1 / 32)
    assert histogram.percentile_us(merged, 99.5) == pytest.approx(100_000, rel=1 / 32)


def test_the_wire_form_comes_back() -> None:
    counts = {3: 7, 900: 1, 17: 0}
    pairs = histogram.to_pairs(counts)
    assert pairs == [(3, 7), (900, 1)]
    assert histogram.from_pairs(pairs) == {3: 7, 900: 1}
    with pytest.raises(ValueError, match="bucket 1024"):
        histogram.from_pairs([[1024, 1]])


def test_an_empty_histogram_has_no_percentile() -> None:
    assert math.isnan(histogram.percentile_us({}, 50))
    assert histogram.highest_us({}) == 0.0
