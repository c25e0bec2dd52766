"""Jobs on a real server: what is counted, how they end, what a crash leaves behind."""

import hashlib
import json
import os
import signal
import stat
import time
import urllib.request
from pathlib import Path

import pytest
from agent_host import (
    PASSWORD,
    PORTS,
    AgentHost,
    command_lines,
    insert_load,
    running,
    wait_for,
)
from conftest import RunningDbms

from fleetmark_agent import histogram
from fleetmark_agent.dbms_status import connect
from fleetmark_agent.job import Connection, Load, Samplers, Settle, Stream
from fleetmark_agent.process import read_pid_file

pytestmark = pytest.mark.fleet

ENDLESS = 100_000_000


def load_pid(host: AgentHost, step: str) -> int:
    identity = read_pid_file(str(host.directory(step) / "load.pid"))
    assert identity
    return identity.pid


def supervisor_pid(host: AgentHost, step: str) -> int:
    identity = read_pid_file(str(host.directory(step) / "pid"))
    assert identity
    return identity.pid


def counted(host: AgentHost, job, seconds: float = 20.0) -> None:
    """Wait until the journal holds an interval with operations."""
    wait_for(lambda: any(r["operations"] for r in host.of_kind(job, "load")), "operations", seconds)


def rows_in_tables(dbms: RunningDbms, tables: int) -> int:
    connection = connect(dbms.connection, PASSWORD)
    with connection.cursor() as cursor:
        total = 0
        for number in range(1, tables + 1):
            cursor.execute(f"SELECT COUNT(*) FROM fleetmark.pi{number}")
            total += cursor.fetchone()[0]
    connection.close()
    return total


def test_a_load_is_counted_to_the_row(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, 30_000))
    answer = host.arm(job)
    assert answer["ready"] is True
    assert answer["threads"] == 2
    at = host.release(job, time.time() + 0.3)
    ended = host.wait_ended(job)

    assert (ended["reason"], ended["class"], ended["exit_code"]) == ("completed", "ok", 0)
    assert ended["sysbench_events"] == 600
    assert ended["load_cpu_seconds"] > 0
    (end,) = host.of_kind(job, "stream_end")
    assert (end["operations"], end["rows"], end["threads"]) == (600, 60_000, 2)
    assert rows_in_tables(dbms, 2) == 60_000
    assert histogram.count_of(histogram.from_pairs(end["service"])) == 600
    assert at <= end["first_event"] <= end["last_event"] < ended["t"]
    loads = host.of_kind(job, "load")
    assert sum(record["rows"] for record in loads) == 60_000
    merged = histogram.merge(histogram.from_pairs(record["service"]) for record in loads)
    assert histogram.to_pairs(merged) == [tuple(pair) for pair in end["service"]]
    assert loads[-1]["total_operations"] == 600
    assert host.of_kind(job, "released")[0]["at"] == pytest.approx(at, abs=1e-6)
    assert host.call("status")["jobs"][0]["state"] == "ended"


def test_load_intervals_end_on_whole_seconds_after_the_release(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, 2_000, rate=16.0))
    host.arm(job)
    at = host.release(job, time.time() + 0.3)
    host.wait_ended(job)
    loads = host.of_kind(job, "load")
    whole = loads[:-1]
    assert len(whole) >= 2
    for number, record in enumerate(whole, 1):
        assert record["t"] == pytest.approx(at + number, abs=0.2)
    assert sum(r["interval_seconds"] for r in loads) == pytest.approx(loads[-1]["t"] - at, abs=0.05)
    hosts = host.of_kind(job, "host")
    first = next(r for r in hosts if r["t"] >= at)
    assert first["t"] == pytest.approx(at, abs=0.2)


def test_status_before_and_after_frame_what_the_server_did(host, dbms):
    samplers = Samplers(1.0, 1.0, dbms.connection, dbms.answer["pid_file"], dbms.answer["data_dir"])
    watch = host.job("01-db", samplers=samplers)
    load = host.job("01-load", insert_load(dbms.port, 20_000))
    host.arm(watch)
    host.arm(load)
    at = time.time() + 0.5
    host.release(watch, at)
    host.release(load, at)
    host.wait_ended(load)
    assert host.call("stop", "--run", host.run) == {"stopped": ["01-db"]}

    ended = host.records(watch)[-1]
    assert (ended["kind"], ended["reason"], ended["class"]) == ("ended", "stopped", "ok")
    notes = {n["name"]: n["status"] for n in host.of_kind(watch, "note") if "name" in n}
    grown = {
        name: int(notes["status_after"][name]) - int(notes["status_before"][name])
        for name in ("Com_insert", "Handler_write")
    }
    assert grown == {"Com_insert": 400, "Handler_write": 40_000}
    records = host.of_kind(watch, "dbms")
    assert sum(r["status"]["Handler_write"] for r in records) == 40_000
    assert all(r["status"]["Threads_running"] >= 1 for r in records)
    assert sum(r["process"]["cpu_seconds"] for r in records) > 0
    assert records[-1]["process"]["rss_bytes"] > 30_000_000
    assert sum(r["process"]["context_switches"] for r in records) > 0


def test_a_rate_is_kept(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, 4_000, rate=40.0))
    host.arm(job)
    host.release(job, time.time() + 0.2)
    host.wait_ended(job)
    (end,) = host.of_kind(job, "stream_end")
    assert end["operations"] == 80
    # 80 operations at 40 a second: the last one is due just before two seconds.
    assert 1.7 < end["last_event"] - end["first_event"] < 3.5


def test_sigterm_to_the_supervisor_is_a_stop(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, ENDLESS))
    host.arm(job)
    host.release(job)
    counted(host, job)
    os.kill(supervisor_pid(host, "01-load"), signal.SIGTERM)
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("stopped", "ok")
    (end,) = host.of_kind(job, "stream_end")
    assert end["operations"] == sum(r["operations"] for r in host.of_kind(job, "load"))
    assert end["operations"] > 0
    assert not running(load_pid(host, "01-load"))


def test_killed_load_keeps_what_was_counted(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, ENDLESS))
    host.arm(job)
    host.release(job)
    counted(host, job)
    os.kill(load_pid(host, "01-load"), signal.SIGKILL)
    ended = host.wait_ended(job)
    assert ended["reason"] == "failed"
    assert ended["signal"] == 9
    assert ended["class"] != "ok"
    assert "signal 9" in ended["message"]
    (end,) = host.of_kind(job, "stream_end")
    assert end["operations"] > 0
    assert end["operations"] == sum(r["operations"] for r in host.of_kind(job, "load"))


def test_killed_supervisor_takes_its_load_along_and_clean_frees_the_host(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, ENDLESS))
    host.arm(job)
    host.release(job)
    counted(host, job)
    load = load_pid(host, "01-load")
    os.kill(supervisor_pid(host, "01-load"), signal.SIGKILL)
    wait_for(lambda: not running(load), "end of the load")
    (state,) = host.call("status", "--run", host.run)["jobs"]
    assert (state["state"], state["ended"]) == ("lost", None)
    assert (host.directory("01-load") / "secret.json").exists()

    kept = host.call("clean", "--run", host.run, "--keep-files")
    assert kept == {"stopped": [], "removed": False}
    assert not (host.directory("01-load") / "secret.json").exists()
    assert not (host.directory("01-load") / "sysbench.cnf").exists()
    assert host.records(job)[-1]["kind"] in ("load", "host")
    assert host.call("clean", "--run", host.run) == {"stopped": [], "removed": True}
    assert host.call("status") == {"claim": None, "dbms": [], "jobs": []}


def test_clean_ends_a_running_job(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, ENDLESS))
    host.arm(job)
    host.release(job)
    counted(host, job)
    load = load_pid(host, "01-load")
    assert host.call("clean", "--run", host.run) == {"stopped": ["01-load"], "removed": True}
    assert not running(load)
    assert not host.directory("01-load").exists()


def test_a_load_that_hangs_is_killed_after_the_deadline(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, ENDLESS), deadline_seconds=1.5)
    host.arm(job)
    host.release(job)
    counted(host, job)
    os.kill(load_pid(host, "01-load"), signal.SIGSTOP)
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"], ended["signal"]) == ("deadline", "workload", 9)
    assert "1.5 s" in ended["message"]
    assert host.of_kind(job, "stream_end")[0]["operations"] > 0


def test_deadline_ends_a_load_that_listens(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, ENDLESS), deadline_seconds=1.0)
    host.arm(job)
    host.release(job)
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"], ended["signal"]) == ("deadline", "workload", 0)


def test_a_job_that_nobody_releases_ends(host):
    job = host.job("01-db", arm_timeout_seconds=0.5)
    host.arm(job)
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("arm_timeout", "host")
    assert "released" in ended["message"]


def test_a_server_that_is_not_there_is_a_workload_error_in_arm(host):
    job = host.job("01-load", insert_load(PORTS[-1], 100))
    error = host.arm(job, code=4)
    assert error["kind"] == "workload"
    assert str(PORTS[-1]) in error["message"] + error["evidence"] or "connect" in error["message"]
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("failed", "workload")


def test_a_script_that_is_not_there_is_refused(host):
    stream = Stream("q", 1, "q")
    load = Load("/nowhere/mine.lua", Connection("127.0.0.1", PORTS[-1], "u", "d"), [stream])
    error = host.arm(host.job("01-load", load), code=4)
    assert "/nowhere/mine.lua" in error["message"]


def test_too_little_disk_is_found_before_the_load_starts(host):
    job = host.job("01-load", insert_load(PORTS[-1], 100), minimum_free_bytes=1 << 60)
    error = host.arm(job, code=3)
    assert "bytes free" in error["message"]
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("disk_full", "host")


def test_a_second_run_is_refused_while_the_host_is_held(host):
    host.call("claim", host.run, "--by", "alice")
    other = AgentHost("run-2")
    try:
        other.base = host.base
        error = other.call("claim", "run-2", code=3)
        assert "held by run run-1" in error["message"]
        assert "alice" in error["evidence"]
        assert other.arm(other.job("01-db"), code=3)["message"] == error["message"]
        dbms = other.put_dbms(other.dbms("t1", PORTS[5]))
        assert other.call("dbms-start", str(dbms), code=3)["message"] == error["message"]
    finally:
        other.close()
    assert host.call("status")["claim"]["run"] == host.run


def test_a_job_is_armed_once(host):
    job = host.job("01-db")
    host.arm(job)
    assert "armed before" in host.arm(job, code=3)["message"]
    host.call("stop", "--run", host.run)
    assert "armed before" in host.arm(job, code=3)["message"]


def test_release_needs_a_ready_job(host):
    job = host.job("01-db")
    host.arm(job)
    host.call("stop", "--run", host.run)
    place = ("--run", job.run, "--trial", job.trial, "--step", job.step)
    error = host.call("release", *place, "--at", "1", code=3)
    assert "ended" in error["message"]


def test_follow_gives_the_journal_from_an_offset(host):
    job = host.job("01-db")
    host.arm(job)
    path = host.directory("01-db") / "journal.jsonl"
    place = ("--run", job.run, "--trial", job.trial, "--step", job.step)
    offset = path.stat().st_size
    follower = host.start("follow", *place, "--from", str(offset))
    host.release(job)
    host.call("stop", "--run", host.run)
    out, err = follower.communicate(timeout=20)
    assert (follower.returncode, err) == (0, b"")
    assert out == path.read_bytes()[offset:]
    assert out.endswith(b'"class":"ok"}\n')


def test_secrets_are_nowhere_to_be_read(host, dbms):
    job = host.job("01-load", insert_load(dbms.port, ENDLESS))
    host.arm(job)
    host.release(job)
    counted(host, job)
    secret = PASSWORD.encode()
    assert PASSWORD not in command_lines()
    for path in host.base.rglob("*"):
        if path.is_file():
            holds = secret in path.read_bytes() or b"secret" in path.name.encode()
            mode = stat.S_IMODE(path.stat().st_mode)
            assert not holds or mode == 0o600, path
    assert stat.S_IMODE(host.directory("01-load").stat().st_mode) == 0o700
    host.call("stop", "--run", host.run)
    left = [p for p in host.base.rglob("*") if p.is_file()]
    assert [p for p in left if b"a-\\secret" in p.read_bytes()] == []
    assert not (host.directory("01-load") / "secret.json").exists()
    assert not (host.directory("01-load") / "sysbench.cnf").exists()


def test_metrics_are_served_while_the_job_runs(host, dbms):
    port = PORTS[10]
    job = host.job("01-load", insert_load(dbms.port, ENDLESS))
    host.arm(job, metrics=f"127.0.0.1:{port}")
    host.release(job)
    counted(host, job)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    rows = float(values['fleetmark_agent_rows_total{stream="insert"}'])
    operations = float(values['fleetmark_agent_operations_total{stream="insert"}'])
    assert rows == 100 * operations > 0
    buckets = [float(v) for k, v in values.items() if k.startswith("fleetmark_agent_service")]
    assert max(buckets) == operations
    assert values['fleetmark_agent_job_state{state="released"}'] == "1.0"
    host.call("stop", "--run", host.run)


def test_a_metrics_port_that_is_taken_is_a_note(host):
    first, second = host.job("01-a"), host.job("01-b")
    address = f"127.0.0.1:{PORTS[11]}"
    host.arm(first, metrics=address)
    wait_for(lambda: _serves(address), "metrics")
    host.arm(second, metrics=address)
    note = wait_for(lambda: host.of_kind(second, "note"), "note")[0]
    assert address in note["text"]
    host.call("stop", "--run", host.run)


def _serves(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_settle_writes_dirty_pages_and_puts_variables_back(host, dbms):
    load = host.job("01-load", insert_load(dbms.port, 20_000))
    host.arm(load)
    host.release(load)
    host.wait_ended(load)
    connection = connect(dbms.connection, PASSWORD)
    cursor = connection.cursor()
    asked = "SHOW GLOBAL VARIABLES LIKE 'innodb_max_dirty_pages_pct%'"
    cursor.execute(asked)
    before = cursor.fetchall()

    settle = Settle(dbms.connection, ["pi1", "pi2", "no_such_table"], minimum_seconds=3.0)
    job = host.job("02-wait", settle=settle)
    host.arm(job)
    at = host.release(job)
    cursor.execute(asked)
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("completed", "ok")
    assert ended["t"] - at >= 3.0
    cursor.execute(asked)
    assert cursor.fetchall() == before
    connection.close()
    notes = host.of_kind(job, "note")
    named = {note["name"]: note["status"] for note in notes if "name" in note}
    start = named["settle_start"]["Innodb_buffer_pool_pages_dirty"]
    assert start > named["settle_end"]["Innodb_buffer_pool_pages_dirty"]
    assert [n["text"] for n in notes if n["level"] == "warning"] == [
        "ANALYZE TABLE no_such_table: Table 'fleetmark.no_such_table' doesn't exist"
    ]


def test_a_stopped_settle_puts_variables_back(host, dbms):
    settle = Settle(dbms.connection, [], minimum_seconds=600.0)
    job = host.job("02-wait", settle=settle)
    connection = connect(dbms.connection, PASSWORD)
    cursor = connection.cursor()
    host.arm(job)
    host.release(job)

    def limit() -> float:
        cursor.execute("SELECT @@GLOBAL.innodb_max_dirty_pages_pct")
        return float(cursor.fetchone()[0])

    wait_for(lambda: limit() == 1.0, "lowered limit")
    host.call("stop", "--run", host.run)
    assert limit() == 90.0
    connection.close()
    assert host.records(job)[-1]["reason"] == "stopped"


def test_a_settle_that_cannot_connect_is_a_workload_error(host):
    nowhere = Connection("127.0.0.1", PORTS[-1], "fleetmark", "fleetmark")
    job = host.job("02-wait", settle=Settle(nowhere, ["pi1"], minimum_seconds=1.0))
    host.arm(job)
    host.release(job)
    ended = host.wait_ended(job)
    assert (ended["reason"], ended["class"]) == ("failed", "workload")
    assert str(PORTS[-1]) in ended["message"] or "connect" in ended["message"]


def test_a_dbms_that_goes_away_is_noted_once_and_host_samples_go_on(host):
    nowhere = Connection("127.0.0.1", PORTS[-1], "fleetmark", "fleetmark")
    job = host.job("01-db", samplers=Samplers(0.1, 0.1, nowhere))
    host.arm(job)
    host.release(job)
    wait_for(lambda: len(host.of_kind(job, "host")) > 5, "host samples")
    host.call("stop", "--run", host.run)
    notes = [n["text"] for n in host.of_kind(job, "note")]
    assert len(notes) == 1
    assert notes[0].startswith("DBMS sampler:")


def test_manifest_lists_what_is_there(host):
    job = host.job("01-db")
    host.arm(job)
    host.call("stop", "--run", host.run)
    host.wait_ended(job)
    directory = host.directory("01-db")
    manifest = json.loads((directory / "manifest.json").read_text())
    assert set(manifest["files"]) == {"job.json", "journal.jsonl", "pid", "stop", "supervisor.log"}
    for name, entry in manifest["files"].items():
        data = Path(directory / name).read_bytes()
        assert entry == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_a_server_that_hangs_stops_neither_samples_nor_the_end(host, dbms):
    samplers = Samplers(0.1, 0.1, dbms.connection, dbms.answer["pid_file"])
    job = host.job("01-db", samplers=samplers)
    host.arm(job)
    host.release(job)
    wait_for(lambda: host.of_kind(job, "dbms"), "DBMS samples")
    os.kill(dbms.answer["pid"], signal.SIGSTOP)
    try:
        seen = len(host.of_kind(job, "host"))
        wait_for(lambda: len(host.of_kind(job, "host")) > seen + 10, "host samples")
        host.call("stop", "--run", host.run)
    finally:
        os.kill(dbms.answer["pid"], signal.SIGCONT)
    ended = host.records(job)[-1]
    assert (ended["kind"], ended["reason"]) == ("ended", "stopped")
