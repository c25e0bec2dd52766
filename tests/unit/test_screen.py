"""What a person reads of a run: the screen, the plain line, the numbers in them."""

import io
from pathlib import Path

from growing_run import STEP, T0, TRIAL, GrowingRun, Interval, query_run
from rich.console import Console

from fleetmark.watch import RunWatcher
from fleetmark.watch.screen import duration, latency, plain_line, screen, sparkline


def test_the_screen_and_the_line_show_the_numbers(
    tmp_path: Path,
) -> None:
    run = GrowingRun(tmp_path)
    query_run(run, 4, 200)
    place = (STEP, "load1", "query")
    run.load(5, place, Interval(10, 100, latency_us=2_500_000.0, errors={"lock_wait": 3}))
    run.event(4, "taint", trial=TRIAL, step=STEP, kind="clock", text="bound too wide")
    now = T0 + 5.0
    snapshot = RunWatcher(run.directory, lambda: now).poll()
    console = Console(width=80, force_terminal=False, record=True, file=io.StringIO())
    console.print(screen(snapshot, now))
    text = console.export_text()
    for part in (
        "doublewrite",
        "trial 1 of 2",
        "mariadb/dw1",
        "running qr100",
        "7,210 operations",
        "SLA",
        "undecided",
        "start error 2.00 ms",
        "2.56 s",
        "lock_wait 3",
        "taints: clock 1",
    ):
        assert part in text
    line = plain_line(snapshot.targets[0])
    assert TRIAL in line
    assert "errors 3" in line


def test_numbers_are_written_for_people() -> None:
    assert sparkline((0.0, 5.0, 10.0)) == "▁▅█"
    assert sparkline((0.0, 0.0)) == "▁▁"
    assert [duration(s) for s in (9.4, 65, 3_661)] == ["9 s", "1:05", "1:01:01"]
    assert [latency(us) for us in (12.0, 1_500.0, 2_000_000.0)] == ["12 us", "1.5 ms", "2 s"]
