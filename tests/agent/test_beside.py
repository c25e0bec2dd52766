"""What runs beside a load: the DBMS sampler, a settle, the metrics of the running job."""

import os
import signal
import time
import urllib.request

import pytest
from agent_host import PASSWORD, PORTS, counted, insert_load
from waiting import wait_for

from fleetmark_agent.dbms_status import connect
from fleetmark_agent.job import Connection, Samplers, Settle

pytestmark = pytest.mark.fleet

ENDLESS = 100_000_000


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
