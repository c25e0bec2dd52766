"""Following a run directory while it grows."""

import json
import tracemalloc
from pathlib import Path

import pytest
from growing_run import SECOND_TRIAL, STEP, T0, TRIAL, GrowingRun, Interval, query_run

from fleetmark.errors import ResultError
from fleetmark.watch import RunWatcher
from fleetmark.watch.tail import Tail
from fleetmark_agent import histogram
from fleetmark_exporters.snapshot import RunSnapshot, StepSnapshot, StreamSnapshot


class Clock:
    """The controller's clock, set by the test: seconds after T0."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return T0 + self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return GrowingRun(tmp_path)


@pytest.fixture
def watcher(run: GrowingRun, clock: Clock) -> RunWatcher:
    return RunWatcher(run.directory, clock)


def step_of(snapshot: RunSnapshot) -> StepSnapshot:
    step = snapshot.targets[0].step
    assert step is not None
    return step


def stream_of(snapshot: RunSnapshot, host: str, stream: str) -> StreamSnapshot:
    (found,) = [s for s in step_of(snapshot).streams if (s.host, s.stream) == (host, stream)]
    return found


def test_a_tail_gives_each_whole_line_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    tail = Tail(path)
    assert list(tail.lines()) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert list(tail.lines()) == [b"one", b"two"]
    assert list(tail.lines()) == []
    with path.open("ab") as handle:
        handle.write(b"ee\n")
    assert list(tail.lines()) == [b"three"]


def test_a_tail_reads_lines_longer_than_its_chunk(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    long = b"x" * (3 << 20)
    path.write_bytes(b"a\n" + long + b"\nb\n")
    assert list(Tail(path).lines()) == [b"a", long, b"b"]


def test_what_is_done_is_said_from_the_start(run: GrowingRun, watcher: RunWatcher) -> None:
    target = watcher.poll().targets[0]
    assert (target.name, target.activity, target.trial, target.step) == (
        "db1",
        "waiting",
        None,
        None,
    )
    assert target.trials == {"planned": 2, "running": 0, "ok": 0, "partial": 0, "failed": 0}
    run.begin_trial(-10)
    run.event(-2, "step_armed", trial=TRIAL, step="01-l.i0", host="load1")
    target = watcher.poll().targets[0]
    assert target.activity == "arming l.i0"
    assert target.trials["running"] == 1


def test_totals_rates_and_progress_by_rows(
    run: GrowingRun, watcher: RunWatcher, clock: Clock
) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    run.load(1, ("01-l.i0", "load1", "insert"), Interval(3, 300))
    run.load(1, ("01-l.i0", "load2", "insert"), Interval(5, 500))
    clock.seconds = 1.2
    step = step_of(watcher.poll())
    assert (step.name, step.state, step.measure, step.total) == ("l.i0", "running", "rows", 800)
    assert step.rate_now == 800
    # Four clients insert 1,000 rows each.
    assert step.progress == 800 / 4_000
    assert step.elapsed_seconds == pytest.approx(1.2)
    # 800 of 4,000 rows were counted one second after the release.
    assert step.expected_end == pytest.approx(T0 + 5.0)

    run.load(2, ("01-l.i0", "load1", "insert"), Interval(10, 1_000))
    clock.seconds = 2.2
    snapshot = watcher.poll()
    assert stream_of(snapshot, "load1", "insert").operations == 13
    assert stream_of(snapshot, "load1", "insert").rows_per_second == 1_000
    assert step_of(snapshot).total == 1_800
    # The second interval of load2 has not come yet: its last known rate stands for it.
    assert snapshot.targets[0].rates == (300.0, 1_500.0)


def test_histograms_are_added_over_intervals_and_replaced_by_the_exact_end(
    run: GrowingRun, watcher: RunWatcher
) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    place = ("01-l.i0", "load1", "insert")
    run.load(1, place, Interval(7, 700, latency_us=900.0))
    run.load(2, place, Interval(5, 500, latency_us=40_000.0, errors={"deadlock": 2}, retries=2))
    stream = stream_of(watcher.poll(), "load1", "insert")
    assert stream.service == {histogram.bucket_of(900.0): 7, histogram.bucket_of(40_000.0): 5}
    assert stream.response == {histogram.bucket_of(1_800.0): 7, histogram.bucket_of(80_000.0): 5}
    assert histogram.count_of(stream.service) == stream.operations
    assert (stream.errors, stream.retries) == ({"deadlock": 2}, 2)
    assert 40_000.0 <= stream.worst_us <= 41_250.0
    run.load(3, place, Interval(1, 100, latency_us=900.0))
    stream = stream_of(watcher.poll(), "load1", "insert")
    assert stream.worst_us < 1_000.0 < stream.step_worst_us
    run.end_stream(3.5, place)
    stream = stream_of(watcher.poll(), "load1", "insert")
    assert (stream.operations, stream.ended, stream.threads) == (13, True, 0)
    assert histogram.count_of(stream.service) == 13


def test_a_snapshot_does_not_change_afterwards(run: GrowingRun, watcher: RunWatcher) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    run.load(1, ("01-l.i0", "load1", "insert"), Interval(7, 700))
    before = stream_of(watcher.poll(), "load1", "insert")
    run.load(2, ("01-l.i0", "load1", "insert"), Interval(7, 700, errors={"other": 1}))
    watcher.poll()
    assert histogram.count_of(before.service) == 7
    assert before.errors == {}


def test_the_start_error_is_by_the_hosts_own_clock(run: GrowingRun, watcher: RunWatcher) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    for host in ("load1", "load2"):
        run.load(1, ("01-l.i0", host, "insert"), Interval(1, 100))
    errors = step_of(watcher.poll()).start_errors_seconds
    assert errors == pytest.approx({"load1": 0.002, "load2": 0.002}, abs=1e-6)


def test_the_sla_is_undecided_while_the_step_runs(
    run: GrowingRun, watcher: RunWatcher, clock: Clock
) -> None:
    query_run(run, 4, 200)
    clock.seconds = 4.1
    step = step_of(watcher.poll())
    assert step.sla is not None
    assert (step.sla.stream, step.sla.rate_per_second) == ("insert", 400)
    assert step.sla.state == "undecided"
    assert step.sla.ratio == pytest.approx(1.0, abs=0.01)
    assert (step.measure, step.total, step.rate_now) == ("operations", 7_200, 1_800)
    assert step.progress == pytest.approx(1_600 / 4_000)


@pytest.mark.parametrize(("seconds", "state"), [(10.4, "ok"), (10.6, "missed"), (20.0, "missed")])
def test_the_sla_is_decided_over_the_real_duration(
    run: GrowingRun, watcher: RunWatcher, seconds: float, state: str
) -> None:
    query_run(run, 10, 200)
    # All 4,000 rows are there, and so is the SLA unless they took longer than 10 s / 0.95.
    run.end_stream(10.0, (STEP, "load1", "insert"))
    run.end_stream(seconds, (STEP, "load2", "insert"))
    run.end_step(seconds + 1, STEP)
    step = step_of(watcher.poll())
    assert step.sla is not None
    assert step.sla.ratio == pytest.approx(10.0 / seconds)
    assert step.sla.state == state
    assert (step.state, step.progress) == ("ended", 1.0)


def test_the_sla_of_a_step_that_was_cut_off_stays_undecided(
    run: GrowingRun, watcher: RunWatcher
) -> None:
    query_run(run, 3, 200)
    run.end_step(4, STEP, state="partial")
    step = step_of(watcher.poll())
    assert step.sla is not None
    assert step.sla.state == "undecided"
    assert step.progress == pytest.approx(1_200 / 4_000)


def test_a_settle_step_progresses_by_time(
    run: GrowingRun, watcher: RunWatcher, clock: Clock
) -> None:
    run.begin_trial(-10)
    run.release(0, "05-wait", hosts=())
    clock.seconds = 1.0
    step = step_of(watcher.poll())
    assert step.progress == pytest.approx(1.0 / step.expected_seconds)
    assert step.streams == ()
    clock.seconds = 60.0
    assert step_of(watcher.poll()).progress == 0.99
    run.end_step(60, "05-wait")
    assert step_of(watcher.poll()).progress == 1.0


def test_an_ended_step_stays_for_a_scrape_and_goes_later(
    run: GrowingRun, watcher: RunWatcher, clock: Clock
) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    run.load(1, ("01-l.i0", "load1", "insert"), Interval(7, 700))
    run.end_step(2, "01-l.i0")
    clock.seconds = 500.0
    assert [s.name for s in watcher.poll().targets[0].steps] == ["l.i0"]
    run.release(3, "02-l.x")
    clock.seconds = 4.0
    assert [s.name for s in watcher.poll().targets[0].steps] == ["l.i0", "l.x"]
    clock.seconds = 33.0
    assert [s.name for s in watcher.poll().targets[0].steps] == ["l.x"]


def test_steps_of_two_trials_are_never_shown_together(
    run: GrowingRun, watcher: RunWatcher, clock: Clock
) -> None:
    run.begin_trial(-10)
    run.release(0, "07-qp100")
    run.end_step(1, "07-qp100")
    run.event(2, "trial_ended", trial=TRIAL, state="ok", reason="")
    clock.seconds = 3.0
    run.begin_trial(3, SECOND_TRIAL)
    target = watcher.poll().targets[0]
    assert target.trial is not None
    assert (target.trial.id, target.activity) == (TRIAL, "trial 2: database started")
    run.release(4, "01-l.i0", SECOND_TRIAL)
    target = watcher.poll().targets[0]
    assert target.trial is not None
    assert (target.trial.config, target.trial.number) == ("dw0", 2)
    assert [s.name for s in target.steps] == ["l.i0"]
    assert target.trials == {"planned": 0, "running": 1, "ok": 1, "partial": 0, "failed": 0}


def test_a_second_attempt_has_its_own_directory(run: GrowingRun, watcher: RunWatcher) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    run.load(1, ("01-l.i0", "load1", "insert"), Interval(7, 700))
    run.event(2, "trial_ended", trial=TRIAL, state="failed", reason="the host was lost")
    assert step_of(watcher.poll()).total == 700
    again = f"{TRIAL}.a2"
    run.begin_trial(3, again, attempt=2)
    run.release(4, "01-l.i0", again)
    run.load(5, ("01-l.i0", "load1", "insert"), Interval(1, 100), again)
    snapshot = watcher.poll()
    assert step_of(snapshot).total == 100
    trial = snapshot.targets[0].trial
    assert trial is not None
    assert (trial.id, trial.attempt) == (TRIAL, 2)


def test_a_journal_that_begins_anew_is_not_counted_twice(
    run: GrowingRun, watcher: RunWatcher
) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    for second in range(1, 4):
        run.load(second, ("01-l.i0", "load1", "insert"), Interval(7, 700))
    assert stream_of(watcher.poll(), "load1", "insert").operations == 21
    path = run.directory.step(TRIAL, "01-l.i0", "load1") / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3]))
    stream = stream_of(watcher.poll(), "load1", "insert")
    assert histogram.count_of(stream.service) == 7


def test_a_damaged_line_is_told_and_the_rest_counts(run: GrowingRun, watcher: RunWatcher) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    run.load(1, ("01-l.i0", "load1", "insert"), Interval(7, 700))
    path = run.directory.step(TRIAL, "01-l.i0", "load1") / "journal.jsonl"
    with path.open("a") as handle:
        handle.write("{half\n")
    run.load(2, ("01-l.i0", "load1", "insert"), Interval(7, 700))
    for _ in range(2):
        snapshot = watcher.poll()
        assert stream_of(snapshot, "load1", "insert").operations == 14
        assert histogram.count_of(stream_of(snapshot, "load1", "insert").service) == 14
        assert len(snapshot.problems) == 1
        assert "{half" in snapshot.problems[0]


def test_a_silent_host_is_named(run: GrowingRun, watcher: RunWatcher, clock: Clock) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    for second in range(1, 30):
        run.load(second, ("01-l.i0", "load1", "insert"), Interval(7, 700))
    run.load(1, ("01-l.i0", "load2", "insert"), Interval(7, 700))
    clock.seconds = 30.0
    silent = watcher.poll().targets[0].silent_seconds
    assert silent == pytest.approx({"load2": 29.0})


def test_taints_failures_and_the_end(run: GrowingRun, watcher: RunWatcher, clock: Clock) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    run.event(1, "taint", trial=TRIAL, step="01-l.i0", kind="start_error", text="60 ms late")
    run.event(1, "host_failed", host="load2", **{"class": "host"}, text="does not answer")
    run.event(2, "run_ended", state="partial")
    clock.seconds = 5.0
    assert watcher.poll().expected_end is not None
    run.state("partial", "2026-05-28T20:30:00Z")
    snapshot = watcher.poll()
    assert snapshot.targets[0].taints == {"start_error": 1}
    assert snapshot.host_failures == ("load2: does not answer",)
    assert (snapshot.state, snapshot.expected_end) == ("partial", None)
    assert snapshot.ended == 1_780_000_200.0
    assert step_of(snapshot).state == "ended"


def test_the_expected_end_counts_down_to_the_rest_of_the_plan(
    run: GrowingRun, watcher: RunWatcher, clock: Clock
) -> None:
    trials = json.loads(run.directory.plan_json.read_text())["trials"]
    whole = sum(trial["expected_seconds"] for trial in trials)
    first = watcher.poll()
    assert first.expected_end is not None
    assert first.expected_end - T0 == pytest.approx(whole)
    run.begin_trial(-10)
    run.release(0, "06-qr100")
    clock.seconds = 10.0
    later = watcher.poll()
    assert later.expected_end is not None
    assert later.expected_end - clock() < whole - 10.0


def test_another_format_version_is_refused(run: GrowingRun, watcher: RunWatcher) -> None:
    text = run.directory.run_json.read_text()
    run.directory.run_json.write_text(text.replace('"version": 1', '"version": 9'))
    with pytest.raises(ResultError, match="version 9, this program reads 1"):
        watcher.poll()


def test_a_long_step_is_read_once_and_does_not_grow_memory(
    run: GrowingRun, watcher: RunWatcher
) -> None:
    run.begin_trial(-10)
    run.release(0, "01-l.i0")
    place = ("01-l.i0", "load1", "insert")

    def feed(first: int, count: int) -> None:
        for second in range(first, first + count):
            run.load(second, place, Interval(3, 300, latency_us=100.0 + second % 997))

    feed(1, 2_000)
    watcher.poll()
    tracemalloc.start()
    try:
        watcher.poll()
        before = tracemalloc.get_traced_memory()[0]
        for part in range(8):
            tracemalloc.stop()
            feed(2_001 + 1_000 * part, 1_000)
            tracemalloc.start()
            watcher.poll()
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert stream_of(watcher.poll(), "load1", "insert").operations == 30_000
    # What is kept of 8,000 more intervals is one histogram and the last rates.
    assert after - before < 200_000
