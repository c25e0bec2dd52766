"""The report on values: marks, verdicts, partial runs, order, numbers."""

import json
import shutil
from pathlib import Path

import pytest
import synthetic_run
from synthetic_run import Options

from fleetmark import report, store
from fleetmark.analyse.tones import Tone
from fleetmark.report import figures
from fleetmark.report.compose import compose
from fleetmark.report.document import Cell, Document, Notebook, Table
from fleetmark.tables.build import open_tables

DW0_TRIAL = "db1.mariadb.dw0.insert_benchmark.r1"


def _compose(path: Path, options: Options) -> Document:
    return compose(open_tables(synthetic_run.write(path, options)))


def _table(document: Document, table_id: str) -> Table:
    blocks = [b for section in document.sections for b in section.blocks]
    return next(b for b in blocks if isinstance(b, Table) and b.id == table_id)


def _cell(table: Table, label: str, heading: str) -> Cell:
    line = next(x for x in table.lines if x.label == label)
    return line.cells[[c.heading for c in table.columns].index(heading)]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Document:
    options = Options(
        slow_inserts={("dw1", "qr500"): 0.8},
        taints=((DW0_TRIAL, "06-qr100", "start_error", "load2 began 62 ms late"),),
    )
    return _compose(tmp_path_factory.mktemp("r"), options)


def test_a_taint_is_marked_beside_every_number_of_its_step(document: Document) -> None:
    note = next(n for n in document.notes if "start_error" in n.text)
    assert note.text == "db1.mariadb.dw0, qr100: start_error: load2 began 62 ms late"
    for table_id in ("absolute-1", "relative-1", "background-1"):
        assert note.number in _cell(_table(document, table_id), "db1.mariadb.dw0", "qr100").marks
        assert _cell(_table(document, table_id), "db1.mariadb.dw0", "qp100").marks == ()
    for table_id in ("latency-1-5", "counters-1-5"):
        line = next(x for x in _table(document, table_id).lines if x.label == "db1.mariadb.dw0")
        assert any(note.number in cell.marks for cell in line.cells)


def test_a_missed_sla_is_marked_and_red_in_the_background_table(document: Document) -> None:
    cell = _cell(_table(document, "background-1"), "db1.mariadb.dw1", "qr500")
    assert (cell.text, cell.detail, cell.tone) == ("1,600", "80.0 %", Tone.BAD)
    note = next(n for n in document.notes if n.number == cell.marks[0])
    assert "inserts reached 80.0 % of the rate asked for" in note.text
    target = _table(document, "background-1").lines[-1]
    assert (target.label, [c.text for c in target.cells]) == (
        "target",
        ["400", "400", "2,000", "2,000"],
    )
    absolute = _cell(_table(document, "absolute-1"), "db1.mariadb.dw1", "qr500")
    assert "SLA missed" in absolute.detail


def test_numbers_and_ratios_of_the_summary(document: Document) -> None:
    absolute, relative = _table(document, "absolute-1"), _table(document, "relative-1")
    assert _cell(absolute, "db1.mariadb.dw1", "l.i0").text == "4,000"
    assert _cell(absolute, "db1.mariadb.dw0", "l.i0").tone == Tone.GOOD
    assert _cell(relative, "db1.mariadb.dw0", "l.i0").text == "1.35"
    assert _cell(relative, "db1.mariadb.dw0", "l.i0").tone == Tone.HIGHER
    assert "One repeat: no interval" in absolute.note
    assert [c.unit for c in absolute.columns][:5] == ["rows/s"] * 4 + ["queries/s"]


def test_verdicts_name_misses_taints_and_the_finding(document: Document) -> None:
    words = {v.text: v.good for v in document.verdicts}
    assert words["SLA missed in 1 of 8 query steps"] is False
    assert words["1 taint (start_error)"] is False
    finding = next(text for text in words if text.startswith("db1.mariadb.dw0"))
    assert (
        finding == "db1.mariadb.dw0: 1.35 times db1.mariadb.dw1 (median; 1.00 to 1.35 over 7 steps)"
    )


def test_parts_stand_in_their_order(document: Document) -> None:
    assert [s.title for s in document.sections if s.level == 2] == [
        "Summary",
        "Steps",
        "Database size",
        "Configuration in effect",
        "Hosts",
        "Contract",
        "Taints",
        "How it was run",
        "Files and checksums",
        "Versions",
    ]
    assert document.complete


def test_configuration_shows_what_was_asked_and_marks_differences(document: Document) -> None:
    cell = _cell(_table(document, "variables-asked"), "innodb_doublewrite", "db1.mariadb.dw0")
    assert (cell.text, cell.tone) == ("OFF", Tone.HIGHER)


def test_a_partial_run_is_loud(tmp_path: Path) -> None:
    lost = Options(query_rates=(100,), lost_journals=((DW0_TRIAL, "06-qr100", "load2"),))
    document = _compose(tmp_path, lost)
    assert not document.complete
    assert document.state == "partial"
    assert f"{DW0_TRIAL}, step qr100: nothing from load2" in document.partial_because
    cell = _cell(_table(document, "absolute-1"), "db1.mariadb.dw0", "qr100")
    assert "partial" in cell.detail
    assert any("nothing from load2" in n.text for n in document.notes if n.number in cell.marks)


def test_a_run_that_goes_on_says_that_it_has_no_checksums(tmp_path: Path) -> None:
    document = _compose(tmp_path, Options(query_rates=(100,), configs=("dw1",), ended=False))
    assert not document.complete
    assert any(v.text == "No checksums yet" for v in document.verdicts)


def test_equal_notes_share_a_number() -> None:
    notebook = Notebook()
    assert [notebook.mark(t) for t in ("a", "b", "a")] == [1, 2, 1]
    assert notebook.text(2) == "b"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.0, "0"),
        (1234567.8, "1,234,568"),
        (123.4, "123"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.012345, "0.0123"),
        (0.0000012345, "1.23e-06"),
        (-12.34, "-12.3"),
    ],
)
def test_numbers_have_sensible_digits(value: float | None, text: str) -> None:
    assert figures.number(value) == text


def test_other_figures() -> None:
    assert figures.size(1536) == "1.50 KiB"
    assert figures.size(0) == "0 B"
    assert figures.duration(3725) == "1 h 2 min"
    assert figures.duration(65) == "1 min 5 s"
    assert figures.percent(0.9567) == "95.7"
    assert figures.moment("2026-12-01T10:15:00Z") == "2026-12-01 10:15:00 UTC"
    assert figures.moment("soon") == "soon"


def test_a_trial_that_broke_off_keeps_its_columns(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, Options(query_rates=(100,)))
    document = json.loads((run.trial(DW0_TRIAL) / "trial.json").read_text())
    store.write_json(run.trial(DW0_TRIAL) / "trial.json", {**document, "state": "failed"})
    for step in ("06-qr100", "07-qp100"):
        shutil.rmtree(run.trial(DW0_TRIAL) / step)
    composed = compose(open_tables(run))
    assert not composed.complete
    assert f"trial {DW0_TRIAL}: failed; never began: qr100, qp100" in composed.partial_because
    cell = _cell(_table(composed, "absolute-1"), "db1.mariadb.dw0", "qp100")
    assert (cell.text, cell.detail, cell.marks) == ("–", "never began", ())


def test_a_run_that_broke_off_before_its_first_trial_still_has_a_report(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, Options(query_rates=(100,), ended=False))
    shutil.rmtree(run.path / "trials")
    shutil.rmtree(run.path / "hosts")
    written = report.write(run)
    text = written[0].read_text()
    assert "RUNNING" in text
    assert "This step never began." in text
    assert "None" not in text


def test_a_changed_file_is_named_at_the_top(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, Options(query_rates=(100,), configs=("dw1",)))
    facts = run.host("load1") / "facts.json"
    facts.write_text(facts.read_text().replace("Example CPU 9000", "Example CPU 9001"))
    composed = compose(open_tables(run))
    assert composed.state == "damaged"
    assert not composed.complete
    assert "damaged: hosts/load1/facts.json: checksum differs" in composed.partial_because
    assert any(v.text == "1 file damaged" and v.good is False for v in composed.verdicts)
