"""The ledger: append-only, whole after a crash, the source of resume."""

import json
import threading
from pathlib import Path

import pytest

from fleetmark.errors import InfrastructureError, ResultError
from fleetmark.ledger import Ledger, TrialState, directory_name, read, trial_of, trial_states


def test_events_come_back_in_order(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "journal.jsonl")
    book.append("run_started")
    book.append("trial_started", trial="t", attempt=1)
    book.close()
    again = Ledger(tmp_path / "journal.jsonl")
    again.append("trial_ended", trial="t", state="ok", reason="")
    again.close()
    events = read(tmp_path / "journal.jsonl")
    assert [(e["seq"], e["event"]) for e in events] == [
        (0, "run_started"),
        (1, "trial_started"),
        (2, "trial_ended"),
    ]


def test_many_threads_leave_no_gap(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "journal.jsonl")
    threads = [
        threading.Thread(target=lambda: [book.append("facts", host="h") for _ in range(10)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    book.close()
    assert [e["seq"] for e in read(tmp_path / "journal.jsonl")] == list(range(80))


def test_a_half_line_of_a_crash_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = Ledger(path)
    book.append("run_started")
    book.close()
    with path.open("a") as handle:
        handle.write('{"seq": 1, "t": 12')
    assert len(read(path)) == 1
    book = Ledger(path)
    book.append("interrupted")
    book.close()
    assert [e["event"] for e in read(path)] == ["run_started", "interrupted"]


def test_a_missing_event_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [json.dumps({"seq": n, "t": 0, "event": "facts"}) for n in (0, 2)]
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ResultError, match=r"journal\.jsonl:2: event 1"):
        read(path)


def test_a_run_has_one_conductor(tmp_path: Path) -> None:
    run = tmp_path / "20261201T101500Z-3fa9"
    run.mkdir()
    book = Ledger(run / "journal.jsonl")
    with pytest.raises(InfrastructureError, match="20261201T101500Z-3fa9 is being conducted"):
        Ledger(run / "journal.jsonl")
    book.close()
    Ledger(run / "journal.jsonl").close()


def test_no_ledger_is_no_events(tmp_path: Path) -> None:
    assert read(tmp_path / "journal.jsonl") == []


@pytest.mark.parametrize(
    ("trial", "attempt", "name"),
    [("db1.m.c.w.r1", 1, "db1.m.c.w.r1"), ("db1.m.c.w.r1", 3, "db1.m.c.w.r1.a3")],
)
def test_an_attempt_has_a_directory_of_its_own(trial: str, attempt: int, name: str) -> None:
    assert directory_name(trial, attempt) == name
    assert trial_of(name) == (trial, attempt)


def test_the_last_attempt_decides() -> None:
    def event(name: str, trial: str, **fields: object) -> dict[str, object]:
        return {"event": name, "trial": trial, **fields}

    states = trial_states(
        [
            event("trial_started", "a"),
            event("trial_ended", "a", state="failed"),
            event("trial_started", "b"),
            event("trial_ended", "b", state="ok"),
            event("trial_started", "a.a2"),
            event("trial_ended", "a.a2", state="ok"),
            event("trial_started", "c"),
            event("taint", "c"),
        ]
    )
    assert states == {
        "a": TrialState(2, "ok"),
        "b": TrialState(1, "ok"),
        "c": TrialState(1, ""),
    }
