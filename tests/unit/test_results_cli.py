"""The verbs on stored results, through the command line's own parser."""

import csv
import json
from pathlib import Path

import pytest
import synthetic_run
import typer
from synthetic_run import Options
from typer.testing import CliRunner

from fleetmark import store
from fleetmark.cli import results
from fleetmark.errors import ConfigError, FleetmarkError, ResultError

app = typer.Typer()
app.command("report")(results.report)
app.command("compare")(results.compare)
app.add_typer(results.results_app, name="results")


def _fleetmark(*arguments: object) -> str:
    outcome = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(outcome.exception, FleetmarkError):
        raise outcome.exception
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


@pytest.fixture
def run(tmp_path: Path) -> store.RunDirectory:
    return synthetic_run.write(tmp_path, Options(query_rates=(100,)))


def test_ls_lists_runs_with_state_and_taints(run: store.RunDirectory) -> None:
    (line,) = json.loads(_fleetmark("results", "ls", "--results", run.path.parent, "--json"))
    assert line == {
        "run": run.run_id,
        "experiment": "doublewrite",
        "state": "complete",
        "started": "2026-12-01T10:15:00Z",
        "duration_seconds": 750.0,
        "trials": 2,
        "taints": 0,
        "path": str(run.path),
    }
    assert "doublewrite" in _fleetmark("results", "ls", "--results", run.path.parent)


def test_show_has_every_step(run: store.RunDirectory) -> None:
    shown = json.loads(_fleetmark("results", "show", run.path, "--json"))
    assert len(shown["steps"]) == 2 * 7
    assert "qr100" in _fleetmark("results", "show", run.run_id[:10], "--results", run.path.parent)


def test_verify_passes_on_a_whole_run_also_after_a_report(run: store.RunDirectory) -> None:
    _fleetmark("report", run.path)
    assert "all as they were stored" in _fleetmark("results", "verify", run.path)


def test_verify_names_a_flipped_byte_a_missing_and_an_added_file(run: store.RunDirectory) -> None:
    changed = run.step("db1.mariadb.dw1.insert_benchmark.r1", "01-l.i0", "load1") / "journal.jsonl"
    data = bytearray(changed.read_bytes())
    data[len(data) // 2] ^= 1
    changed.write_bytes(bytes(data))
    (run.host("load2") / "facts.json").unlink()
    (run.path / "stray.txt").write_text("x")
    with pytest.raises(ResultError) as caught:
        _fleetmark("results", "verify", run.path)
    assert caught.value.exit_code == 5
    assert caught.value.evidence.splitlines() == [
        "hosts/load2/facts.json: missing",
        "stray.txt: not in SHA256SUMS",
        f"{changed.relative_to(run.path)}: checksum differs",
    ]


def test_sql_answers_with_values(run: store.RunDirectory) -> None:
    query = "select config, round(throughput) as t from steps where name = 'l.i0' order by config"
    rows = json.loads(_fleetmark("results", "sql", run.path, query, "--json"))
    assert rows == [{"config": "dw0", "t": 5400.0}, {"config": "dw1", "t": 4000.0}]
    assert "5400" in _fleetmark("results", "sql", run.path, query)


@pytest.mark.parametrize(
    "query", ["select nothing", "selct", "select * from read_csv('/etc/hostname')"]
)
def test_a_wrong_query_is_a_usage_error_in_the_engines_words(
    run: store.RunDirectory, query: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _fleetmark("results", "sql", run.path, query)
    assert "Error" in caught.value.evidence
    assert "steps" in caught.value.next_step


def test_export_writes_a_csv_for_each_table(run: store.RunDirectory, tmp_path: Path) -> None:
    _fleetmark("results", "export", run.path, "--to", tmp_path / "csv")
    with (tmp_path / "csv" / "steps.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    found = {(r["config"], r["name"]): float(r["throughput"] or 0) for r in rows}
    assert found["dw1", "l.i0"] == pytest.approx(4_000, rel=0.001)
    assert len(rows) == 14
    assert len(list((tmp_path / "csv").glob("*.csv"))) == 15


def test_a_run_goes_out_as_an_archive_and_comes_in_again(
    run: store.RunDirectory, tmp_path: Path
) -> None:
    packed = tmp_path / "run.tar.gz"
    told = _fleetmark("results", "export", run.path, "--archive", packed)
    (files,) = [word for word in told.split() if word.isdigit()]
    there = tmp_path / "there"
    imported = json.loads(_fleetmark("results", "import", packed, "--results", there, "--json"))
    path = str(there / run.run_id)
    assert imported == {"run": run.run_id, "files": int(files), "path": path}
    assert "all as they were stored" in _fleetmark("results", "verify", path)
    with pytest.raises(ConfigError, match="already"):
        _fleetmark("results", "import", packed, "--results", there)


def test_report_prints_both_paths(run: store.RunDirectory) -> None:
    paths = _fleetmark("report", run.path).split()
    assert [Path(p).name for p in paths] == ["report.html", "report.md"]
    assert all(Path(p).is_file() for p in paths)


def test_compare_is_relative_to_the_first_row(run: store.RunDirectory) -> None:
    other = synthetic_run.write(run.path.parent, Options(seed=2, configs=("dw0",)))
    (found,) = json.loads(_fleetmark("compare", run.path, other.path, "--json"))
    assert found["rows"][0]["relative"]["qr100"] == 1.0
    assert found["rows"][2]["run"] == other.run_id
    assert found["rows"][2]["relative"]["qr100"] == pytest.approx(1.35, rel=0.001)
    assert "1.35" in _fleetmark("compare", run.path, other.path)


def test_a_run_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2099"):
        _fleetmark("report", "2099", "--results", tmp_path)
