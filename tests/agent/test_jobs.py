"""Jobs on a real server: what is counted, how they end, what a crash leaves behind."""

import hashlib
import json
import os
import signal
import stat
import time
from pathlib import Path

import pytest
from agent_host import (
    PASSWORD,
    PORTS,
    AgentHost,
    RunningDbms,
    command_lines,
    counted,
    insert_load,
    running,
)
from waiting import wait_for

from fleetmark_agent import histogram
from fleetmark_agent.dbms_status import connect
from fleetmark_agent.job import Connection, Load, Stream
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
    # The values that the first second is counted from are taken just before T0.
    nearest = min(hosts, key=lambda r: abs(r["t"] - at))
    assert nearest["t"] == pytest.approx(at, abs=0.2)


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
