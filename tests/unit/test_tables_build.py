"""Tables of whole runs: values that follow from how the run was made up."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import synthetic_run
from synthetic_run import DISK, SERVER_CPU, Options

from fleetmark import ledger, store
from fleetmark.errors import ResultError
from fleetmark.tables.build import RunTables, build, ensure, open_tables, read
from fleetmark.tables.schema import ALL, Row

TRIAL = "db1.mariadb.dw1.insert_benchmark.r1"


def _one(rows: list[Row], **wanted: object) -> Row:
    found = [r for r in rows if all(r[k] == v for k, v in wanted.items())]
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunTables:
    options = Options(
        slow_inserts={("dw1", "qr500"): 0.8, ("dw0", "qr500"): 0.96},
        taints=((TRIAL, "06-qr100", "start_error", "load2 began late"),),
    )
    return open_tables(synthetic_run.write(tmp_path_factory.mktemp("r"), options))


def test_every_table_has_the_declared_columns_with_units(run: RunTables) -> None:
    for name, table in ALL.items():
        schema = pq.read_schema(run.run.tables / f"{name}.parquet")
        assert schema.names == table.names
    metadata = pq.read_schema(run.run.tables / "steps.parquet").field("response_p99_us").metadata
    assert metadata[b"unit"] == b"us"


def test_throughput_is_counted_over_the_overlap_only(tmp_path: Path) -> None:
    # load2 begins two seconds late; each host does 1/2 of 12,000 rows at an even pace in 6 s,
    # so while both run they do 2,000 a second together; over 8 s of wall time it is 1,500.
    late = Options(configs=("dw1",), late={"load2": 2.0}, rows_i0=3_000)
    opened = open_tables(synthetic_run.write(tmp_path, late))
    step = _one(opened.rows("steps"), name="l.i0")
    assert step["throughput_basis"] == "overlap"
    assert step["overlap_seconds"] == pytest.approx(4.0, abs=0.001)
    assert step["throughput"] == pytest.approx(2_000, rel=0.02)
    assert step["step_throughput"] == pytest.approx(12_000 / 8.0, rel=0.001)
    assert step["start_error_seconds"] == pytest.approx(2.0)
    merged = _one(opened.rows("streams"), name="l.i0", stream="insert", host="")
    assert merged["rows"] == 12_000
    assert merged["overlap_rows"] == pytest.approx(8_000, rel=0.02)


def test_overlap_is_found_from_the_journals_when_the_step_has_not_ended(tmp_path: Path) -> None:
    late = Options(configs=("dw1",), late={"load2": 2.0}, rows_i0=3_000)
    run = synthetic_run.write(tmp_path, late)
    path = run.trial(TRIAL) / "01-l.i0" / "step.json"
    document = json.loads(path.read_text())
    # What was gathered before the end is there, the proof is not: offsets are unknown too.
    for host in document["hosts"]:
        journal = run.step(TRIAL, "01-l.i0", host) / "journal.jsonl"
        journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:12]))
    path.unlink()
    build(run)
    step = _one(read(run, "steps"), step="01-l.i0")
    assert step["partial"] is True
    assert step["state"] == "missing"
    assert "the step did not end" in step["partial_because"]
    assert "journal of load1 has no end" in step["partial_because"]
    assert step["overlap_seconds"] == pytest.approx(3.0, abs=0.01)
    assert step["throughput"] == pytest.approx(2_000, rel=0.05)


def test_histograms_of_two_load_hosts_are_merged_by_adding(run: RunTables) -> None:
    rows = [
        r
        for r in run.rows("histograms")
        if (r["trial"], r["name"], r["stream"], r["kind"]) == (TRIAL, "qr100", "query", "service")
    ]
    by_host: dict[str, dict[int, int]] = {}
    for row in rows:
        by_host.setdefault(row["host"], {})[row["bucket"]] = row["count"]
    assert set(by_host) == {"", "load1", "load2"}
    for bucket, count in by_host[""].items():
        assert count == by_host["load1"].get(bucket, 0) + by_host["load2"].get(bucket, 0)
    stream = _one(run.rows("streams"), trial=TRIAL, name="qr100", stream="query", host="")
    assert sum(by_host[""].values()) == stream["operations"]
    hosts = [
        _one(run.rows("streams"), trial=TRIAL, name="qr100", stream="query", host=h)
        for h in ("load1", "load2")
    ]
    assert stream["response_max_us"] == max(h["response_max_us"] for h in hosts)
    assert stream["response_p50_us"] <= stream["response_p99_us"] <= stream["response_max_us"]


def test_sla_is_judged_over_the_real_duration(run: RunTables) -> None:
    # All rows arrive in the end, but in 7.5 s instead of 6.
    slow = _one(run.rows("steps"), config="dw1", name="qr500")
    assert slow["sla_rate_per_second"] == 2_000
    assert slow["inserts_per_second"] == pytest.approx(1_600, rel=0.001)
    assert slow["sla_ratio"] == pytest.approx(0.8, rel=0.001)
    assert slow["sla_met"] is False
    just = _one(run.rows("steps"), config="dw0", name="qr500")
    assert just["sla_ratio"] == pytest.approx(0.96, rel=0.001)
    assert just["sla_met"] is True
    assert _one(run.rows("steps"), config="dw1", name="l.i0")["sla_met"] is None


def test_index_build_is_total_over_wall_time(run: RunTables) -> None:
    step = _one(run.rows("steps"), trial=TRIAL, name="l.x")
    assert step["throughput_basis"] == "step"
    assert step["rows"] == 24_000
    assert step["throughput"] == pytest.approx(24_000 / 1.5004, rel=1e-4)


def test_counters_have_the_published_denominators(run: RunTables) -> None:
    load = _one(run.rows("counters"), trial=TRIAL, name="l.i0")
    assert load["per"] == "rows"
    assert load["cpu_us_per_operation"] == pytest.approx(2.0 / 4_000 * 1e6, rel=0.001)
    assert load["server_cpu_us_per_operation"] == pytest.approx(SERVER_CPU / 4_000 * 1e6, rel=0.001)
    assert load["fsyncs_per_insert"] == pytest.approx(120 / 4_000, rel=0.001)
    # Two hosts, each with 0.8 s of CPU a second of 6 s, for 24,000 rows.
    assert load["client_cpu_us_per_operation"] == pytest.approx(
        2 * 0.8 * 6 / 24_000 * 1e6, rel=0.001
    )
    query = _one(run.rows("counters"), trial=TRIAL, name="qr100")
    assert query["per"] == "operations"
    assert query["cpu_us_per_operation"] == pytest.approx(2.0 / 3_600 * 1e6, rel=0.001)
    assert query["context_switches_per_operation"] == pytest.approx(20_000 / 3_600, rel=0.001)
    assert query["reads_per_operation"] == pytest.approx(100 / 3_600, rel=0.001)
    assert query["read_kb_per_operation"] == pytest.approx(1_600 / 3_600, rel=0.001)
    # Writes are shared out over the inserted rows, 400 a second, not over the queries.
    assert query["writes_per_insert"] == pytest.approx(400 / 400, rel=0.001)
    assert query["write_kb_per_insert"] == pytest.approx(6_400 / 400, rel=0.001)
    assert query["fsyncs_per_insert"] == pytest.approx(120 / 400, rel=0.001)
    assert query["cpu_percent"] == pytest.approx(25.0)
    assert query["disk"] == DISK


def test_series_add_up_to_the_totals_on_one_clock(run: RunTables) -> None:
    rows = [r for r in run.rows("series") if (r["trial"], r["name"]) == (TRIAL, "qr100")]
    total = _one(run.rows("streams"), trial=TRIAL, name="qr100", stream="query", host="")
    merged = [r for r in rows if r["stream"] == "query" and not r["host"]]
    assert sum(r["operations"] for r in merged) == pytest.approx(total["operations"])
    assert [r["second"] for r in merged] == [0, 1, 2, 3, 4, 5, 6]
    # load1's clock is 250 ms ahead; on the controller's clock the rate is even all the same.
    for row in merged[1:6]:
        assert row["operations_per_second"] == pytest.approx(3_600, rel=0.01)
    for row in merged:
        if row["response_worst_us"] is not None:
            assert row["response_worst_us"] <= total["response_max_us"]


def test_a_host_that_sent_nothing_makes_the_step_partial_and_unjudged(tmp_path: Path) -> None:
    lost = Options(lost_journals=((TRIAL, "06-qr100", "load2"),))
    opened = open_tables(synthetic_run.write(tmp_path, lost))
    step = _one(opened.rows("steps"), trial=TRIAL, name="qr100")
    assert step["partial"] is True
    assert step["partial_because"] == "nothing from load2"
    assert step["sla_met"] is None
    assert _one(opened.rows("steps"), trial=TRIAL, name="qp100")["partial"] is False


def test_taints_stand_with_their_step_and_trial(run: RunTables) -> None:
    (taint,) = run.rows("taints")
    assert (taint["trial"], taint["step"], taint["kind"]) == (TRIAL, "06-qr100", "start_error")
    assert _one(run.rows("steps"), trial=TRIAL, name="qr100")["taints"] == "start_error"
    assert _one(run.rows("steps"), trial=TRIAL, name="qp100")["taints"] == ""
    assert _one(run.rows("trials"), trial=TRIAL)["taints"] == 1


def test_variables_keep_what_was_asked_and_what_differs(run: RunTables) -> None:
    rows = run.rows("variables")
    asked = _one(rows, trial=TRIAL, variable="innodb_doublewrite")
    assert (asked["asked"], asked["effective"], asked["differs"]) == ("ON", "ON", True)
    other = _one(rows, trial=TRIAL, variable="max_connections")
    assert (other["asked"], other["differs"]) == (None, False)


def test_facts_are_flat_and_unknown_ones_are_null(run: RunTables) -> None:
    facts = {r["fact"]: r["value"] for r in run.rows("facts") if r["host"] == "load1"}
    assert facts["cpu.model"] == "Example CPU 9000"
    assert facts["cpu.smt_active"] == "no"
    assert facts["cpu.governor"] is None
    assert facts["data.mount_options"] == "rw, noatime"
    assert facts[f"disks.{DISK}.model"] == "Example SSD"


def test_rebuilding_gives_equal_rows_and_is_skipped_while_fresh(run: RunTables) -> None:
    before = {name: read(run.run, name) for name in ALL}
    stamp = (run.run.tables / "stamp.json").stat().st_mtime_ns
    ensure(run.run)
    assert (run.run.tables / "stamp.json").stat().st_mtime_ns == stamp
    build(run.run)
    assert {name: read(run.run, name) for name in ALL} == before
    assert store.verify_sums(run.run)[1] == []


def test_changed_raw_files_are_built_anew(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path)
    ensure(run)
    document = json.loads((run.trial(TRIAL) / "trial.json").read_text())
    document["taints"] = [{"step": "", "kind": "contract", "text": "governor"}]
    store.write_json(run.trial(TRIAL) / "trial.json", document)
    assert open_tables(run).rows("taints")[0]["text"] == "governor"


def test_of_several_attempts_the_last_one_counts(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path, Options(configs=("dw1",)))
    first, second = run.trial(TRIAL), run.trial(f"{TRIAL}.a2")
    document = json.loads((first / "trial.json").read_text())
    first.rename(second)
    store.write_json(second / "trial.json", {**document, "attempt": 2})
    lost = {"step": "", "kind": "partial", "text": "the host was lost"}
    store.write_json(first / "trial.json", {**document, "state": "failed", "taints": [lost]})
    book = ledger.Ledger(run.ledger)
    for attempt, directory in enumerate((first.name, second.name), 1):
        book.append("trial_started", trial=directory, attempt=attempt)
        book.append("taint", trial=directory, step="01-l.i0", kind="sla", text=f"try {attempt}")
    book.close()
    opened = open_tables(run)
    (trial,) = opened.rows("trials")
    assert (trial["trial"], trial["attempt"], trial["state"]) == (TRIAL, 2, "ok")
    step = _one(opened.rows("steps"), step="01-l.i0")
    assert (step["state"], step["throughput"]) == ("ok", pytest.approx(4_000, rel=0.001))
    assert [t["text"] for t in opened.rows("taints")] == ["try 2"]


def test_an_unknown_version_is_refused_with_the_file(tmp_path: Path) -> None:
    run = synthetic_run.write(tmp_path)
    path = run.trial(TRIAL) / "01-l.i0" / "step.json"
    path.write_text(path.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(ResultError, match=r"step\.json has format version 9"):
        build(run)
