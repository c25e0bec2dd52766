"""Journals: the controller's clock, and errors that name file and line."""

import json
from typing import Any

import pytest

from fleetmark.errors import ResultError
from fleetmark.tables.journals import parse

LOAD = {
    "seq": 0,
    "t": 105.5,
    "kind": "load",
    "stream": "insert",
    "interval_seconds": 1.0,
    "threads": 2,
    "operations": 3,
    "rows": 30,
    "statements": 3,
    "errors": {"deadlock": 1},
    "retries": 1,
    "reconnects": 0,
    "service": [[320, 3]],
    "response": [[320, 3]],
    "lag_seconds": 0.0,
    "total_operations": 3,
    "total_rows": 30,
    "first_event": 104.75,
    "user": [],
}


def _lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def test_times_are_moved_to_the_clock_of_the_controller() -> None:
    (record,) = parse(_lines(LOAD), "journal", offset_seconds=0.5).loads
    assert record.t == 105.0
    assert record.first_event == 104.25
    assert record.errors == {
        "deadlock": 1,
        "lock_wait": 0,
        "connection": 0,
        "commit_unknown": 0,
        "other": 0,
    }


def test_a_cut_last_line_is_left_for_the_next_gathering() -> None:
    data = _lines(LOAD) + b'{"seq": 1, "kind": "lo'
    journal = parse(data, "journal", 0.0)
    assert len(journal.loads) == 1
    assert journal.ended is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "surprise"}, "not a journal record"),
        ({"seq": 7}, "record 7 stands where 1 belongs"),
        ({"stream": None, "operations": "many"}, "many"),
        ({"errors": {"bad_luck": 1}}, "unknown kind of error 'bad_luck'"),
        ({"service": [[99999, 1]]}, "not a histogram entry"),
    ],
)
def test_what_it_does_not_know_is_named_with_file_and_line(
    change: dict[str, Any], words: str
) -> None:
    data = _lines(LOAD, {**LOAD, "seq": 1, **change})
    with pytest.raises(ResultError) as caught:
        parse(data, "run/journal.jsonl", 0.0)
    assert caught.value.message.startswith("run/journal.jsonl:2: ")
    assert words in caught.value.message


def test_a_missing_field_is_named() -> None:
    without = {key: value for key, value in LOAD.items() if key != "total_rows"}
    with pytest.raises(ResultError, match="journal:1: field 'total_rows' is missing"):
        parse(_lines(without), "journal", 0.0)
