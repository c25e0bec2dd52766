"""A real Prometheus scrapes a run that grows; the verbs that look at a run, as processes."""

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from growing_run import TRIAL, GrowingRun, Interval

from fleetmark.watch import scrape_config, serve_during_run

pytestmark = pytest.mark.fleet
STEP = "06-qr100"
FLEETMARK = [sys.executable, "-c", "from fleetmark.cli.app import main; main()"]
PORTS = range(13600, 13700)


def until(condition: Callable[[], Any], what: str, timeout_seconds: float = 20.0) -> Any:
    """The first true value of `condition`."""
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_seconds} s: {what}")


def free_port() -> int:
    for port in PORTS:
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    run = GrowingRun(tmp_path / "results")
    run.begin_trial(-10)
    run.release(0, STEP)
    for host in ("load1", "load2"):
        run.load(1, (STEP, host, "insert"), Interval(4, 200))
        run.load(1, (STEP, host, "query"), Interval(900, 9_000, latency_us=130.0))
    return run


class Prometheus:
    """A running Prometheus with its query API."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=5) as answer:
                return json.load(answer)["data"]
        except (urllib.error.URLError, ValueError):
            return None

    def value(self, expression: str) -> float | None:
        """The value of an expression that gives one series."""
        query = urllib.parse.urlencode({"query": expression})
        data = self.get(f"/api/v1/query?{query}")
        if not data or len(data["result"]) != 1:
            return None
        return float(data["result"][0]["value"][1])


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Iterator[Callable[[str], Prometheus]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(target: str) -> Prometheus:
        config = yaml.safe_load(scrape_config(target))
        config["global"] = {"evaluation_interval": "1s"}
        config["scrape_configs"][0] |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
        path = tmp_path / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        checked = subprocess.run(
            ["promtool", "check", "config", str(path)], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr
        address = f"127.0.0.1:{free_port()}"
        with (tmp_path / "prometheus.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [
                        "prometheus",
                        f"--config.file={path}",
                        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                        f"--web.listen-address={address}",
                    ],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        return Prometheus(address)

    yield start
    for process in started:
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.skipif(not shutil.which("prometheus"), reason="prometheus is missing")
def test_prometheus_scrapes_a_running_run_and_its_end(
    run: GrowingRun, start_prometheus: Callable[[str], Prometheus]
) -> None:
    query = 'target="db1",step="qr100",stream="query"'
    with serve_during_run(run.directory, "127.0.0.1:0", linger_seconds=20) as serving:
        prometheus = start_prometheus(serving.url.split("/")[2])
        total = f"sum(fleetmark_operations_total{{{query}}})"
        until(lambda: prometheus.value(total) == 1_800, "the first numbers in Prometheus")
        run.load(2, (STEP, "load1", "query"), Interval(100, 1_000, latency_us=50_000.0))
        until(lambda: prometheus.value(total) == 1_900, "what came during the run")
        joined = (
            f"sum by (config) (fleetmark_operations_total{{{query}}}"
            " * on (target) group_left (config) fleetmark_trial_info)"
        )
        assert prometheus.value(joined) == 1_900
        service = "fleetmark_operation_service_duration_seconds"
        assert prometheus.value(f"sum({service}_count{{{query}}})") == 1_900
        assert prometheus.value(f'sum({service}_bucket{{{query},le="0.00016"}})') == 1_800
        assert prometheus.value("fleetmark_up") == 1
        run.event(3, "run_ended", state="complete")
        run.state("complete", "2026-05-28T20:30:00Z")
    ended = 'fleetmark_run_state{state="complete"}'
    until(lambda: prometheus.value(f"last_over_time({ended}[1m])") == 1, "the end of the run")
    targets = prometheus.get("/api/v1/targets")["activeTargets"]
    assert [target["labels"]["job"] for target in targets] == ["fleetmark"]
    groups = prometheus.get("/api/v1/rules")["groups"]
    health = {rule["health"] for group in groups for rule in group["rules"]}
    assert health == {"ok"}


def test_a_finished_run_is_served_from_its_directory(run: GrowingRun) -> None:
    run.state("complete", "2026-05-28T20:30:00Z")
    process = subprocess.Popen(
        [*FLEETMARK, "metrics", "serve", str(run.directory.path), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert run.directory.run_id in line
        url = next(word.rstrip(";") for word in line.split() if word.startswith("http"))
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
        assert 'fleetmark_run_state{state="complete"} 1.0' in text
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
        assert process.stdout.read() == "served 1 scrapes\n"
    finally:
        process.kill()
        process.wait(timeout=20)


def fleetmark(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FLEETMARK, *arguments], capture_output=True, text=True, check=False, cwd=cwd, timeout=60
    )


def test_status_as_text_and_json(run: GrowingRun, tmp_path: Path) -> None:
    done = fleetmark("status", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trial 1 of 2" in done.stdout
    assert f"fleetmark resume {run.directory.run_id}" in done.stdout
    done = fleetmark("status", run.directory.run_id, "--json", cwd=tmp_path)
    document = json.loads(done.stdout)
    (target,) = document["targets"]
    assert (document["state"], target["trial"]["id"]) == ("running", TRIAL)
    assert target["steps"][0]["total"] == 1_800
    assert "service" not in target["steps"][0]["streams"][0]


def test_status_of_a_run_that_is_not_there(tmp_path: Path) -> None:
    done = fleetmark("status", "nothing", cwd=tmp_path)
    assert done.returncode == 2
    assert "no run is named 'nothing'" in done.stderr
    assert "Traceback" not in done.stderr


def test_watch_without_a_terminal_ends_with_the_run(run: GrowingRun, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*FLEETMARK, "watch", "--interval", "0.2"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        assert "running qr100" in process.stdout.readline()
        run.end_step(11, STEP)
        assert "qr100 ended" in process.stdout.readline()
        run.event(12, "taint", trial=TRIAL, step=STEP, kind="sla", text="missed")
        run.event(12, "run_ended", state="partial")
        run.state("partial", "2026-05-28T20:30:00Z")
        rest, _ = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "! db1: taints: sla 1" in rest
        assert rest.endswith(f"run {run.directory.run_id} partial\n")
    finally:
        process.kill()
        process.wait(timeout=20)


def test_watch_on_a_terminal_is_a_screen_and_ctrl_c_leaves_the_run(
    run: GrowingRun, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*FLEETMARK, "watch", "--interval", "0.2"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "140", "LINES": "40", "TERM": "xterm"},
    )
    os.close(theirs)
    seen = b""
    try:
        while b"1,800 operations" not in seen:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while b"fleetmark watch" not in seen:
            seen += os.read(ours, 65536)
        assert process.wait(timeout=20) == 130
        assert b"Traceback" not in seen
        assert json.loads(run.directory.run_json.read_text())["state"] == "running"
    finally:
        process.kill()
        process.wait(timeout=20)
        os.close(ours)
