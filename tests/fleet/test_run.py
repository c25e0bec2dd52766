"""A whole run on light hosts: real sshd, agent, mariadbd and sysbench."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from short_runs import channels, deploy, experiment_text, on, prepared

from fleetmark import conduct, ledger, store
from fleetmark.channel import ssh as ssh_channel
from fleetmark.errors import ConfigError, HostError
from fleetmark_agent import journal

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(not shutil.which("sysbench"), reason="sysbench is not installed"),
    pytest.mark.skipif(not shutil.which("mariadbd"), reason="mariadb-server is not installed"),
]

TRIAL = "db1.mariadb.base.insert_benchmark.r1"
LOADS = ("load1", "load2")


@pytest.fixture(scope="module")
def fleet(light_fleet: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    deploy(light_fleet, tmp_path_factory.mktemp("agent"))
    return light_fleet


def assert_clean(fleet: Any) -> None:
    """Nothing of any run is left on any host."""
    for name in fleet.fleet.hosts:
        status = on(fleet, name, "status")
        assert status == {"claim": None, "jobs": [], "dbms": []}, name
        # In a host's own network only its sshd and what we asked with may still run.
        names = fleet.ssh(
            name,
            "for p in $(ip netns pids $(ip netns identify $$) 2>/dev/null);"
            " do cat /proc/$p/comm; done; true",
        )
        assert not {"mariadbd", "sysbench"} & set(names.split())


def events(run: store.RunDirectory, kind: str) -> list[dict[str, Any]]:
    return [e for e in ledger.read(run.ledger) if e["event"] == kind]


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"{what}: not within {seconds} s"
        time.sleep(0.05)


def records(run: store.RunDirectory, step: str, host: str, trial: str = TRIAL) -> list[Any]:
    return journal.read((run.step(trial, step, host) / journal.JOURNAL_NAME).read_bytes())


def intervals(run: store.RunDirectory, step: str, host: str, trial: str = TRIAL) -> int:
    """How many intervals of load have been gathered so far."""
    path = run.step(trial, step, host) / journal.JOURNAL_NAME
    return path.read_bytes().count(b'"kind":"load"') if path.is_file() else 0


def stream(run: store.RunDirectory, step: str, host: str, name: str) -> dict[str, Any]:
    (found,) = [
        r for r in records(run, step, host) if r["kind"] == "stream_end" and r["stream"] == name
    ]
    return dict(found)


@pytest.fixture(scope="module")
def finished(fleet: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """One run by the command line, from the experiment file to the report."""
    directory = tmp_path_factory.mktemp("whole")
    path = directory / "experiment.yaml"
    path.write_text(experiment_text(["l.i0", "l.x", "l.i1", "wait", "qr100"]))
    done = subprocess.run(
        run_command(fleet, path, "--json"),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    return answer, store.RunDirectory(Path(answer["directory"]))


def run_command(fleet: Any, path: Path, *options: str) -> list[str]:
    """`fleetmark run` with the results beside the experiment."""
    command = [sys.executable, "-c", "from fleetmark.cli.app import main; main()", "run", str(path)]
    command += ["-i", str(fleet.inventory), "--results", str(path.parent / "results")]
    return [*command, "--no-provision", *options]


def test_a_run_is_complete_and_its_checksums_hold(finished: tuple[Any, Any], fleet: Any) -> None:
    answer, run = finished
    assert (answer["state"], answer["trials"], answer["errors"]) == ("complete", {TRIAL: "ok"}, [])
    assert store.read_json(run.run_json)["state"] == "complete"
    checked, damage = store.verify_sums(run)
    assert damage == []
    assert checked > 50
    assert [Path(p).name for p in answer["reports"]] == ["report.html", "report.md"]
    assert_clean(fleet)


def test_every_file_of_every_manifest_is_there_and_no_secret(finished: tuple[Any, Any]) -> None:
    _, run = finished
    manifests = sorted(run.path.rglob("manifest.json"))
    assert len(manifests) == 4 * 3 + 1 + 1  # four steps of load, one that settles, the instance
    for manifest in manifests:
        for name, entry in store.read_json(manifest)["files"].items():
            path = manifest.parent / name
            assert (path.stat().st_size, store.sha256_of(path)) == (entry["bytes"], entry["sha256"])
    names = {path.name for path in run.path.rglob("*")}
    assert not names & {"secret.json", "sysbench.cnf", "init.sql"}
    assert {"my.cnf", "error.log"} <= names


def test_rows_and_deletes(finished: tuple[Any, Any]) -> None:
    _, run = finished
    for host in LOADS:
        assert stream(run, "01-l.i0", host, "insert")["rows"] == 3000
        assert stream(run, "03-l.i1", host, "insert")["rows"] == 1000
        assert stream(run, "03-l.i1", host, "delete")["rows"] == 1000
        assert stream(run, "05-qr100", host, "insert")["rows"] == 300
        assert stream(run, "05-qr100", host, "delete")["rows"] == 300
        queries = stream(run, "05-qr100", host, "query")
        assert queries["operations"] > 0
        assert sum(count for _, count in queries["service"]) == queries["operations"]


def test_the_start_is_proved(finished: tuple[Any, Any]) -> None:
    _, run = finished
    released = {e["step"]: e["t0"] for e in events(run, "step_released")}
    for step in ("01-l.i0", "02-l.x", "03-l.i1", "05-qr100"):
        proof = store.read_json(run.trial(TRIAL) / step / "step.json")
        assert proof["state"] == "ok"
        assert proof["t0"] == released[step]
        starts, ends = [], []
        for host in LOADS:
            there = proof["hosts"][host]
            # The hosts share this machine's clock: the measured offset must be within its bound.
            assert abs(there["offset_seconds"]) <= there["offset_bound_seconds"]
            assert there["release_confirmed_seconds_before_t0"] > 0
            assert 0 <= there["start_error_seconds"] < 0.5
            for end in (r for r in records(run, step, host) if r["kind"] == "stream_end"):
                starts.append(end["first_event"] - there["offset_seconds"])
                ends.append(end["last_event"] - there["offset_seconds"])
        assert proof["overlap"]["start"] == pytest.approx(max(starts), abs=1e-6)
        assert proof["overlap"]["end"] == pytest.approx(min(ends), abs=1e-6)
        seconds = max(0.0, min(ends) - max(starts))
        assert proof["overlap"]["seconds"] == pytest.approx(seconds, abs=1e-6)


def test_counts_agree_with_sysbench(finished: tuple[Any, Any]) -> None:
    _, run = finished
    for step in ("01-l.i0", "03-l.i1", "05-qr100"):
        for host in LOADS:
            ends = [r for r in records(run, step, host) if r["kind"] == "stream_end"]
            ended = records(run, step, host)[-1]
            assert ended["sysbench_events"] == sum(end["operations"] for end in ends)


def test_settle_runs_on_the_database_host_alone(finished: tuple[Any, Any]) -> None:
    _, run = finished
    proof = store.read_json(run.trial(TRIAL) / "04-wait" / "step.json")
    assert list(proof["hosts"]) == ["db1"]
    assert (proof["state"], proof["taints"]) == ("ok", [])
    assert proof["overlap"]["share"] == 1.0


def test_the_trial_says_what_ran(finished: tuple[Any, Any]) -> None:
    _, run = finished
    trial = store.read_json(run.trial(TRIAL) / "trial.json")
    assert trial["instance"]["flavour"] == "mariadb"
    assert trial["instance"]["mismatches"] == []
    assert "variables" not in trial["instance"]
    assert "innodb_doublewrite = OFF\nskip_name_resolve\n" in trial["rendered_config"]
    assert trial["stop"]["clean"] is True
    variables = store.read_json(run.trial(TRIAL) / "variables.json")
    assert variables["innodb_buffer_pool_size"] == str(64 << 20)
    assert variables["skip_name_resolve"] == "ON"
    for host in ("db1", *LOADS):
        facts = store.read_json(run.host(host) / "facts.json")
        assert facts["hostname"] == host


def test_a_busy_host_is_refused_and_the_others_are_free_again(fleet: Any, tmp_path: Path) -> None:
    on(fleet, "load2", "claim", "20260101T000000Z-0000", "--by", "somebody@else")
    what = prepared(fleet, tmp_path, experiment_text(["l.i0"]))
    try:
        with channels(fleet) as opened, pytest.raises(HostError) as caught:
            conduct.conduct(what, opened.channels, threading.Event())
        assert caught.value.host == "load2"
        assert "20260101T000000Z-0000" in caught.value.message
        assert "20260101T000000Z-0000" in caught.value.next_step
        assert on(fleet, "db1", "status")["claim"] is None
        assert on(fleet, "load1", "status")["claim"] is None
        assert on(fleet, "load2", "status")["claim"]["run"] == "20260101T000000Z-0000"
        assert store.read_json(what.run.run_json)["state"] == "failed"
    finally:
        on(fleet, "load2", "clean", "--run", "20260101T000000Z-0000")


def test_all_problems_are_found_before_anything_starts(fleet: Any, tmp_path: Path) -> None:
    text = experiment_text(["l.i0"], innodb_buffer_pool_sizee="64M")
    what = prepared(fleet, tmp_path, text)
    program = (
        "import socket, sys; s = socket.create_server(('0.0.0.0', 3306));"
        " print('up', flush=True); sys.stdin.read()"
    )
    listener = subprocess.Popen(
        inside(listener_of(fleet, "db1"), sys.executable, "-c", program),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"up\n"
        with channels(fleet) as opened, pytest.raises(ConfigError) as caught:
            conduct.conduct(what, opened.channels, threading.Event())
    finally:
        listener.communicate()
    assert caught.value.message.startswith("2 problems")
    assert "db1: port 3306 is in use" in caught.value.evidence
    assert "config 'base' on build 'mariadb'" in caught.value.evidence
    assert "unknown variable 'innodb_buffer_pool_sizee=64M'" in caught.value.evidence
    assert events(what.run, "trial_started") == []
    assert_clean(fleet)


def listener_of(fleet: Any, host: str) -> int:
    """The sshd of a light host: light hosts share this machine's process ids."""
    return int(fleet.ssh(host, "ps -o ppid= $PPID"))


def inside(listener: int, *command: str) -> list[str]:
    """A command line that runs in a host's network."""
    return ["nsenter", "-t", str(listener), "-n", *command]


def drop_sessions(listener: int) -> None:
    """Kill the processes that serve connections of a host's sshd; the listener goes on."""
    children = Path(f"/proc/{listener}/task/{listener}/children").read_text().split()
    assert children
    subprocess.run(["kill", "-9", *children], check=True)


def test_ctrl_c_leaves_the_hosts_clean(fleet: Any, tmp_path: Path) -> None:
    path = tmp_path / "experiment.yaml"
    path.write_text(experiment_text(["l.i0"], rows=5_000_000))
    process = subprocess.Popen(
        run_command(fleet, path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def run() -> store.RunDirectory:
            return store.list_runs(tmp_path / "results")[0]

        wait_until(lambda: bool(store.list_runs(tmp_path / "results")), 30, "a run directory")
        wait_until(lambda: intervals(run(), "01-l.i0", "load1") >= 2, 60, "the load step")
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert f"fleetmark resume {run().path}" in stderr
    assert_clean(fleet)
    assert store.read_json(run().run_json)["state"] == "interrupted"
    assert store.verify_sums(run())[1] == []
    step = store.read_json(run().trial(TRIAL) / "01-l.i0" / "step.json")
    assert step["state"] == "partial"
    assert {t["kind"] for t in step["taints"]} >= {"partial"}
    assert records(run(), "01-l.i0", "load1")[-1]["reason"] == "stopped"
    assert 0 < stream(run(), "01-l.i0", "load1", "insert")["rows"] < 5_000_000
    assert store.read_json(run().trial(TRIAL) / "trial.json")["stop"]["clean"] is True


def when_running(
    run: store.RunDirectory, trial: str, host: str, action: Callable[[], object]
) -> threading.Thread:
    """Do something as soon as the first interval of the query step has come from a host."""

    def wait_and_act() -> None:
        wait_until(lambda: intervals(run, "03-qr100", host, trial) > 0, 60, f"load on {host}")
        action()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread


def test_a_lost_host_costs_its_part_and_resume_finishes(
    new_light_lab: Callable[[int, int], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_channel, "CONNECT_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(ssh_channel, "FILE_TIMEOUT_SECONDS", 2.0)
    fleet = new_light_lab(1, 2)
    deploy(fleet, tmp_path)
    what = prepared(fleet, tmp_path, experiment_text(["l.i0", "l.x", "qr100"]), lost_seconds=4.5)
    run = what.run
    network = listener_of(fleet, "load2")

    def link(state: str) -> None:
        subprocess.run(inside(network, "ip", "link", "set", "eth0", state), check=True)

    loser = when_running(run, TRIAL, "load2", lambda: link("down"))
    with channels(fleet) as opened:
        outcome = conduct.conduct(what, opened.channels, threading.Event())
    loser.join()
    assert (outcome.state, outcome.trials) == ("partial", {TRIAL: "partial"})
    assert list(outcome.left_behind) == ["load2"]
    assert outcome.exit_code == 3
    step = store.read_json(run.trial(TRIAL) / "03-qr100" / "step.json")
    assert step["state"] == "partial"
    assert step["hosts"]["load2"]["ended"] is None
    assert step["hosts"]["load2"]["start_error_seconds"] is not None
    assert "partial" in {t["kind"] for t in step["taints"]}
    assert stream(run, "03-qr100", "load1", "insert")["rows"] == 300
    assert {e["host"] for e in events(run, "host_failed")} == {"load2"}
    kept = {p: store.sha256_of(p) for p in run.trial(TRIAL).rglob("*") if p.is_file()}
    assert on(fleet, "db1", "status")["claim"] is None

    link("up")
    _resume_over_a_dropped_connection(fleet, run)
    second = store.read_json(run.trial(f"{TRIAL}.a2") / "trial.json")
    assert (second["id"], second["attempt"], second["state"]) == (TRIAL, 2, "ok")
    # The first attempt stays as it was; what the lost host still held has been added.
    whole = run.step(TRIAL, "03-qr100", "load2")
    changed = {p for p, digest in kept.items() if store.sha256_of(p) != digest}
    assert changed <= {whole / journal.JOURNAL_NAME}
    assert records(run, "03-qr100", "load2")[-1]["kind"] == "ended"
    assert store.verify_sums(run)[1] == []
    assert_clean(fleet)


def _resume_over_a_dropped_connection(fleet: Any, run: store.RunDirectory) -> None:
    """The second attempt loses every connection to a load host in its last step, and no record."""
    listener = listener_of(fleet, "load1")
    again = f"{TRIAL}.a2"
    dropper = when_running(run, again, "load1", lambda: drop_sessions(listener))
    with channels(fleet) as opened:
        outcome = conduct.conduct(conduct.replan(run), opened.channels, threading.Event())
    dropper.join()
    assert (outcome.state, outcome.trials, outcome.errors) == ("complete", {TRIAL: "ok"}, [])
    found = records(run, "03-qr100", "load1", again)
    rows = [r["rows"] for r in found if r["kind"] == "load" and r["stream"] == "insert"]
    assert sum(rows) == 300
