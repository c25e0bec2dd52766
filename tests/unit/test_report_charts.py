"""Charts: what a long line keeps, and pictures that share a page."""

import re

from fleetmark.report.charts import LONGEST_LINE, Panel, Trace, curve_chart, thin_out, time_chart


def test_a_long_line_keeps_its_stalls_and_its_peaks() -> None:
    points: list[tuple[float, float | None]] = [(float(n), 100.0) for n in range(7200)]
    points[3600] = (3600.0, 0.0)
    points[5001] = (5001.0, 900.0)
    points[5002] = (5002.0, None)
    kept = thin_out(points)
    assert len(kept) <= LONGEST_LINE
    assert (3600.0, 0.0) in kept
    assert (5001.0, 900.0) in kept
    assert [x for x, _ in kept] == sorted(x for x, _ in kept)


def test_a_gap_stays_a_gap() -> None:
    points: list[tuple[float, float | None]] = [(float(n), None) for n in range(5000)]
    points[0], points[-1] = (0.0, 1.0), (4999.0, 1.0)
    kept = thin_out(points)
    assert None in [y for _, y in kept]
    assert kept[0] == (0.0, 1.0)
    assert kept[-1] == (4999.0, 1.0)


def test_a_short_line_is_left_alone() -> None:
    points: list[tuple[float, float | None]] = [(0.0, 1.0), (1.0, None), (2.0, 3.0)]
    assert thin_out(points) == points


def test_ticks_keep_their_digits_and_ids_are_the_charts_own() -> None:
    line = Trace(0, [(0.0, 0.011), (1.0, 0.052), (2.0, 0.049)])
    svg = time_chart("a", "Title <1>", "words", [Panel("ms", [line], logarithmic=True)])
    assert ">0.05<" in svg
    assert '<title id="a-title">Title &lt;1&gt;</title>' in svg
    assert all(found.startswith("a-") for found in re.findall(r'\bid="([^"]+)"', svg))
    assert all(found.startswith("a-") for found in re.findall(r"url\(#([^)]+)\)", svg))


def test_charts_without_any_value_can_be_drawn() -> None:
    assert "<svg" in time_chart("a", "t", "d", [Panel("x", [Trace(0, [])])])
    assert "<svg" in curve_chart("b", "t", "d", Panel("x", []))
