"""Serving a run over HTTP: during it, after it, and when the port cannot be had."""

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from growing_run import STEP, GrowingRun, Interval, busy_run, samples_of, value

from fleetmark.errors import ConfigError
from fleetmark.watch import scrape_config, serve, serve_during_run, write_file_sd


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return busy_run(tmp_path)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield int(taken.getsockname()[1])


def test_a_run_is_served_and_a_scrape_sees_what_is_new(run: GrowingRun) -> None:
    with serve_during_run(run.directory, "127.0.0.1:0", linger_seconds=0) as serving:
        assert serving.warning == ""
        first = samples_of(get(serving.url))
        run.load(3, (STEP, "load1", "query"), Interval(50, 500))
        second = samples_of(get(serving.url))
        assert serving.scrapes == 2
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(serving.url.replace("/metrics", "/other"))
        assert serving.scrapes == 2
    labels = {"target": "db1", "step": "qr100", "stream": "query", "host": "load1"}
    seen = [value(s, "fleetmark_operations_total", **labels) for s in (first, second)]
    assert seen == [950, 1_000]


def test_a_busy_port_is_a_warning_and_the_run_goes_on(run: GrowingRun, busy_port: int) -> None:
    with serve_during_run(run.directory, f"127.0.0.1:{busy_port}", linger_seconds=60) as serving:
        assert serving.url == ""
        assert f"127.0.0.1:{busy_port}" in serving.warning
        assert "in use" in serving.warning
        assert "goes on without metrics" in serving.warning


@pytest.mark.parametrize("listen", ["9518", "localhost", "127.0.0.1:99999", ":9518", "a:b"])
def test_what_is_no_address_is_refused(run: GrowingRun, listen: str) -> None:
    with pytest.raises(ConfigError, match="not an address"), serve(run.directory, listen):
        pass


def test_nobody_listens_nobody_waits(run: GrowingRun) -> None:
    # A linger of ten minutes would be noticed.
    with serve_during_run(run.directory, "127.0.0.1:0", linger_seconds=600):
        pass


def test_it_lingers_until_one_more_scrape(run: GrowingRun) -> None:
    answers: list[str] = []
    over = threading.Event()

    def scrape(url: str) -> None:
        while not over.wait(0.05):
            with contextlib.suppress(OSError):
                answers.append(get(url))

    with serve_during_run(run.directory, "127.0.0.1:0", linger_seconds=600) as serving:
        get(serving.url)
        scraper = threading.Thread(target=scrape, args=(serving.url,))
        scraper.start()
        run.event(3, "run_ended", state="complete")
        run.state("complete", "2026-05-28T20:30:00Z")
    over.set()
    scraper.join()
    samples = samples_of(answers[-1])
    assert value(samples, "fleetmark_run_state", state="complete") == 1
    labels = {"target": "db1", "step": "qr100", "stream": "query", "host": "load1"}
    assert value(samples, "fleetmark_operations_total", **labels) == 950


def interrupted_run(run: GrowingRun) -> None:
    with serve_during_run(run.directory, "127.0.0.1:0", linger_seconds=600) as serving:
        get(serving.url)
        raise KeyboardInterrupt


def test_an_interrupted_run_does_not_linger(run: GrowingRun) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted_run(run)


def test_the_scrape_config_is_yaml_with_our_address(tmp_path: Path) -> None:
    config = yaml.safe_load(scrape_config("127.0.0.1:9518"))
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["127.0.0.1:9518"]}]
    assert Path(config["rule_files"][0]).is_file()
    targets = tmp_path / "targets.json"
    write_file_sd(targets, "127.0.0.1:9518")
    config = yaml.safe_load(scrape_config("127.0.0.1:9518", targets))
    assert config["scrape_configs"][0]["file_sd_configs"] == [{"files": [str(targets)]}]
    assert json.loads(targets.read_text()) == [{"targets": ["127.0.0.1:9518"], "labels": {}}]
