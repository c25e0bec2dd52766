"""The run directory: names, atomic writes, checksums."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from fleetmark import store
from fleetmark.errors import ConfigError, ResultError


def a_run(results: Path, run_id: str | None = None) -> store.RunDirectory:
    run = store.create(results, run_id)
    store.write_json(run.run_json, {"version": 1})
    store.write_atomic(run.step("t", "01-l.i0", "load1") / "journal.jsonl", b'{"seq":0}\n')
    return run


def test_ids_sort_by_time() -> None:
    early = store.new_run_id(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    late = store.new_run_id(datetime(2026, 1, 2, 3, 4, 6, tzinfo=UTC))
    assert early.startswith("20260102T030405Z-")
    assert early < late


def test_a_run_directory_is_never_used_twice(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    with pytest.raises(ConfigError):
        store.create(tmp_path, run.run_id)


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    store.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        store.write_json(path, {("no", "key"): 1})
    assert store.read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_runs_are_found_by_id_beginning_latest_and_directory(tmp_path: Path) -> None:
    old = a_run(tmp_path, "20260101T000000Z-aaaa")
    new = a_run(tmp_path, "20260102T000000Z-bbbb")
    assert store.find(tmp_path, "latest").path == new.path.resolve()
    assert store.find(tmp_path, "20260101").path == old.path.resolve()
    assert store.find(tmp_path, str(old.path)).run_id == old.run_id
    with pytest.raises(ConfigError, match="2 runs begin with"):
        store.find(tmp_path, "2026")
    with pytest.raises(ConfigError, match="no run is named"):
        store.find(tmp_path, "nope")


def test_checksums_find_flipped_missing_and_added(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    store.write_sums(run)
    assert store.verify_sums(run) == (2, [])
    journal = run.step("t", "01-l.i0", "load1") / "journal.jsonl"
    journal.write_bytes(b'{"seq":1}\n')
    (run.path / "added").write_text("x")
    run.run_json.unlink()
    checked, damage = store.verify_sums(run)
    assert checked == 2
    assert {(d.path, d.problem) for d in damage} == {
        ("run.json", "missing"),
        ("added", "not in SHA256SUMS"),
        ("trials/t/01-l.i0/load1/journal.jsonl", "checksum differs"),
    }


def test_reports_and_tables_are_not_evidence(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    store.write_sums(run)
    (run.path / "report.html").write_text("x")
    run.tables.mkdir()
    (run.tables / "steps.parquet").write_text("x")
    assert store.verify_sums(run) == (2, [])


def test_a_run_without_sums_says_so(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="has no SHA256SUMS"):
        store.verify_sums(a_run(tmp_path))
