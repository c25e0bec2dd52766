"""Summaries, repeats, latency curves and comparisons, on values."""

from pathlib import Path

import pytest
import synthetic_run
from synthetic_run import Options

from fleetmark.analyse.comparison import compare
from fleetmark.analyse.latency import curve, percentiles_us
from fleetmark.analyse.repeats import estimate
from fleetmark.analyse.summary import Summary, relative, summarise
from fleetmark.tables.build import open_tables
from fleetmark_agent import histogram

DW1, DW0 = "db1.mariadb.dw1", "db1.mariadb.dw0"


def _summary(path: Path, options: Options) -> Summary:
    opened = open_tables(synthetic_run.write(path, options))
    (summary,) = summarise(opened.rows("trials"), opened.rows("steps"))
    return summary


def test_rows_and_columns_stand_in_the_order_of_the_plan(tmp_path: Path) -> None:
    summary = _summary(tmp_path, Options())
    assert summary.rows == (DW1, DW0)
    assert summary.steps[:5] == ("l.i0", "l.x", "l.i1", "l.i2", "wait")
    assert "wait" not in summary.measured_steps
    assert relative(summary.column("l.i0")) == [1.0, pytest.approx(1.35, rel=0.001)]


def test_repeats_give_median_range_and_n(tmp_path: Path) -> None:
    summary = _summary(tmp_path, Options(repeats=3, configs=("dw1",)))
    measured = summary.get(DW1, "qr100")
    assert measured is not None
    assert measured.throughput is not None
    assert measured.throughput.n == 3
    assert measured.throughput.median == pytest.approx(3_600, rel=0.001)
    assert measured.throughput.words == (
        "3 repeats; the true median lies within their range with 75 % confidence"
    )


def test_a_partial_repeat_is_left_out_while_a_whole_one_is_there(tmp_path: Path) -> None:
    lost = (("db1.mariadb.dw1.insert_benchmark.r2", "06-qr100", "load2"),)
    summary = _summary(tmp_path, Options(repeats=2, configs=("dw1",), lost_journals=lost))
    measured = summary.get(DW1, "qr100")
    assert measured is not None
    assert measured.partial
    assert not measured.all_partial
    assert measured.throughput is not None
    assert measured.throughput.n == 1
    assert measured.throughput.median == pytest.approx(3_600, rel=0.001)
    assert measured.sla_failed is False


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([3.0, 1.0, 2.0], (2.0, 1.0, 3.0, 3, 0.75)),
        ([4.0, None, 2.0], (3.0, 2.0, 4.0, 2, 0.5)),
        ([5.0], (5.0, 5.0, 5.0, 1, None)),
    ],
)
def test_estimate(values: list[float | None], expected: tuple[object, ...]) -> None:
    found = estimate(values)
    assert found is not None
    assert (found.median, found.minimum, found.maximum, found.n, found.confidence) == expected


def test_no_interval_is_said_of_one_repeat() -> None:
    one = estimate([5.0])
    assert one is not None
    assert one.words == "one repeat: no interval"
    assert estimate([None]) is None


def test_relative_to_a_missing_or_zero_base_is_missing() -> None:
    assert relative([None, 2.0]) == [None, None]
    assert relative([0.0, 2.0]) == [None, None]
    assert relative([2.0, None, 3.0]) == [1.0, None, 1.5]


def test_percentiles_never_pass_the_maximum() -> None:
    counts = {histogram.bucket_of(1_000.0): 100}
    assert percentiles_us(counts, 995.0, [50.0, 99.9]) == [995.0, 995.0]
    assert percentiles_us({}, 0.0) == []


def test_the_curve_goes_as_far_as_the_values_carry_it() -> None:
    counts = {histogram.bucket_of(1_000.0): 90, histogram.bucket_of(8_000.0): 10}
    points = curve(counts, 8_100.0)
    assert max(p.percent for p in points[:-1]) == 99.0
    assert points[-1].latency_us == 8_100.0
    assert points[-1].percent == pytest.approx(99.5)
    assert [p.latency_us for p in points] == sorted(p.latency_us for p in points)


def test_runs_are_compared_by_same_steps(tmp_path: Path) -> None:
    first = _summary(tmp_path, Options(seed=1, configs=("dw1",)))
    second = _summary(tmp_path, Options(seed=2, configs=("dw0",), query_rates=(100,)))
    (found,) = compare([("a", [first]), ("b", [second])])
    assert found.steps == first.measured_steps
    base, other = found.rows
    place = found.steps.index("qr100")
    assert base.relative[place] == 1.0
    assert other.relative[place] == pytest.approx(1.35, rel=0.001)
    assert other.relative[found.steps.index("qr500")] is None
