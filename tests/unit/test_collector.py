"""The Prometheus side: metrics of a snapshot, buckets, server, rules, dashboard."""

import contextlib
import itertools
import json
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from growing_run import T0, TRIAL, GrowingRun, Interval
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fleetmark.errors import ConfigError
from fleetmark.watch import RunWatcher, scrape_config, serve, serve_during_run, write_file_sd
from fleetmark_agent import histogram
from fleetmark_exporters import dashboard_path, rules_path
from fleetmark_exporters.buckets import BOUNDS_US, cumulative, sum_seconds
from fleetmark_exporters.collector import RunCollector
from fleetmark_exporters.snapshot import RUN_STATES

STEP = "06-qr100"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing")


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    """Two hosts, two seconds into a query step, with errors and a taint."""
    run = GrowingRun(tmp_path)
    run.begin_trial(-10)
    run.release(0, STEP)
    for host, queries in (("load1", 900), ("load2", 700)):
        run.load(1, (STEP, host, "insert"), Interval(4, 200, lag_seconds=0.5))
        run.load(1, (STEP, host, "query"), Interval(queries, queries * 10, latency_us=130.0))
        run.load(
            2, (STEP, host, "query"), Interval(50, 500, latency_us=70_000.0, errors={"deadlock": 3})
        )
    run.event(2, "taint", trial=TRIAL, step=STEP, kind="clock", text="bound too wide")
    return run


def exposition(run: GrowingRun) -> str:
    registry = CollectorRegistry()
    registry.register(RunCollector(RunWatcher(run.directory, lambda: T0 + 2.0).poll))
    return generate_latest(registry).decode()


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def test_the_numbers_of_the_run_come_out(run: GrowingRun) -> None:
    samples = samples_of(exposition(run))
    query = {"target": "db1", "step": "qr100", "stream": "query"}
    assert value(samples, "fleetmark_operations_total", host="load1", **query) == 950
    assert value(samples, "fleetmark_operations_total", host="load2", **query) == 750
    assert value(samples, "fleetmark_rows_total", host="load1", **query) == 9_500
    errors = value(samples, "fleetmark_errors_total", host="load1", kind="deadlock", **query)
    assert errors == 3
    assert value(samples, "fleetmark_errors_total", host="load1", kind="other", **query) == 0
    insert = {**query, "stream": "insert"}
    assert value(samples, "fleetmark_lag_seconds", host="load1", **insert) == 0.5
    assert value(samples, "fleetmark_stream_threads", host="load1", **insert) == 2
    place = {"target": "db1", "step": "qr100"}
    assert value(samples, "fleetmark_step_running", **place) == 1
    assert value(samples, "fleetmark_step_progress_ratio", **place) == 400 / 4_000
    assert value(samples, "fleetmark_step_start_timestamp_seconds", **place) == T0
    start_error = value(samples, "fleetmark_start_error_seconds", host="load2", **place)
    assert start_error == pytest.approx(0.002, abs=1e-6)
    sla = {**place, "stream": "insert"}
    # The last insert interval ended a second after T0; 400 rows a second are asked for.
    assert value(samples, "fleetmark_sla_minimum_ratio", **sla) == 0.95
    assert value(samples, "fleetmark_sla_state", state="undecided", **sla) == 1
    assert value(samples, "fleetmark_sla_state", state="ok", **sla) == 0
    assert value(samples, "fleetmark_taints_total", target="db1", kind="clock") == 1
    assert value(samples, "fleetmark_trials", target="db1", state="planned") == 1
    assert value(samples, "fleetmark_up") == 1
    assert 0 < value(samples, "fleetmark_scrape_duration_seconds") < 5
    states = {s: value(samples, "fleetmark_run_state", state=s) for s in RUN_STATES}
    assert [state for state, on in states.items() if on] == ["running"]
    info = {"trial": TRIAL, "build": "mariadb", "config": "dw1", "repeat": "1"}
    workload = {"workload": "insert_benchmark"}
    assert value(samples, "fleetmark_trial_info", target="db1", **info, **workload) == 1


@pytest.mark.parametrize("kind", ["service", "response"])
def test_histogram_counts_equal_operations(run: GrowingRun, kind: str) -> None:
    samples = samples_of(exposition(run))
    name = f"fleetmark_operation_{kind}_duration_seconds"
    for host in ("load1", "load2"):
        for stream in ("insert", "query"):
            labels = {"target": "db1", "step": "qr100", "stream": stream, "host": host}
            operations = value(samples, "fleetmark_operations_total", **labels)
            assert value(samples, f"{name}_count", **labels) == operations
            assert value(samples, f"{name}_bucket", le="+Inf", **labels) == operations


def test_service_and_response_are_apart(run: GrowingRun) -> None:
    samples = samples_of(exposition(run))
    labels = {"target": "db1", "step": "qr100", "stream": "query", "host": "load1"}

    def below(kind: str, le: str) -> float:
        return value(
            samples, f"fleetmark_operation_{kind}_duration_seconds_bucket", le=le, **labels
        )

    # 900 queries took 130 us, and 260 us from when they were due.
    assert (below("service", "0.00012"), below("service", "0.00016")) == (0, 900)
    assert (below("response", "0.00016"), below("response", "0.00032")) == (0, 900)


def test_the_run_id_stands_in_one_series_only(run: GrowingRun) -> None:
    lines = [line for line in exposition(run).splitlines() if run.directory.run_id in line]
    assert len(lines) == 1
    assert lines[0].startswith("fleetmark_run_info{")


def test_an_unreadable_run_is_down_but_answers(run: GrowingRun) -> None:
    run.directory.run_json.write_text("{")
    samples = samples_of(exposition(run))
    assert value(samples, "fleetmark_up") == 0
    assert len(samples) == 2


def test_bounds_are_bounds_of_our_own_buckets() -> None:
    assert (BOUNDS_US[0], BOUNDS_US[1], BOUNDS_US[-1]) == (10.0, 15.0, 10_485_760.0)
    for bound in BOUNDS_US:
        assert histogram.lower_bound_us(histogram.bucket_of(bound)) == bound
    assert all(later / sooner <= 1.5 for sooner, later in itertools.pairwise(BOUNDS_US))


def test_cumulative_counts_are_exact() -> None:
    latencies = [3.0, 9.9, 10.0, 14.9, 15.1, 900.0, 1e6, 2e7]
    counts: histogram.Sparse = {}
    for latency in latencies:
        bucket = histogram.bucket_of(latency)
        counts[bucket] = counts.get(bucket, 0) + 1
    rows = cumulative(counts)
    for label, count in rows[:-1]:
        assert count == sum(latency < float(label) * 1e6 * (1 + 1e-9) for latency in latencies) - (
            latencies.count(float(label) * 1e6)
        )
    assert rows[-1] == ("+Inf", len(latencies))
    assert [float(label) for label, _ in rows] == sorted(float(label) for label, _ in rows)
    assert sum_seconds(counts) == pytest.approx(sum(latencies) / 1e6, rel=1 / 64)


@needs_promtool
def test_promtool_accepts_the_metrics(run: GrowingRun) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=exposition(run),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


RULE_TESTS: dict[str, Any] = {
    "rule_files": [str(rules_path())],
    "evaluation_interval": "10s",
    "tests": [
        {
            "interval": "10s",
            "input_series": [
                {
                    "series": 'fleetmark_operations_total{target="db1",step="qr100",'
                    f'stream="query",host="{host}"}}',
                    "values": f"0+{per_tick}x30",
                }
                for host, per_tick in (("load1", 1000), ("load2", 500))
            ]
            + [
                {
                    "series": 'fleetmark_operations_total{target="db2",step="qr100",'
                    'stream="query",host="load3"}',
                    "values": "7x30",
                },
                {"series": 'fleetmark_step_running{target="db1",step="qr100"}', "values": "1x30"},
                {"series": 'fleetmark_step_running{target="db2",step="qr100"}', "values": "1x30"},
                {
                    "series": 'fleetmark_sla_state{target="db1",step="qr100",stream="insert",'
                    'state="missed"}',
                    "values": "0x15 1x15",
                },
                {
                    "series": 'fleetmark_start_error_seconds{target="db1",step="qr100",'
                    'host="load2"}',
                    "values": "-0.08x30",
                },
                {"series": "fleetmark_up", "values": "1x30"},
            ],
            "promql_expr_test": [
                {
                    "expr": "target_step_stream:fleetmark_operations:rate1m",
                    "eval_time": "3m",
                    "exp_samples": [
                        {
                            "labels": "target_step_stream:fleetmark_operations:rate1m"
                            '{target="db1",step="qr100",stream="query"}',
                            "value": 150,
                        },
                        {
                            "labels": "target_step_stream:fleetmark_operations:rate1m"
                            '{target="db2",step="qr100",stream="query"}',
                            "value": 0,
                        },
                    ],
                }
            ],
            "alert_rule_test": [
                {"alertname": "FleetmarkSlaMissed", "eval_time": "1m", "exp_alerts": []},
                {
                    "alertname": "FleetmarkSlaMissed",
                    "eval_time": "4m",
                    "exp_alerts": [
                        {
                            "exp_labels": {
                                "severity": "warning",
                                "target": "db1",
                                "step": "qr100",
                                "stream": "insert",
                                "state": "missed",
                            },
                            "exp_annotations": {
                                "summary": "db1 qr100: the insert rate was missed",
                                "description": "The host could not carry the load asked for;"
                                " the query rate does not count.",
                            },
                        }
                    ],
                },
                {
                    "alertname": "FleetmarkStalled",
                    "eval_time": "4m",
                    "exp_alerts": [
                        {
                            "exp_labels": {"severity": "warning", "target": "db2", "step": "qr100"},
                            "exp_annotations": {
                                "summary": "db2 qr100: no operation for a minute",
                                "description": "The database stands still, or its load hosts are"
                                " not heard.",
                            },
                        }
                    ],
                },
                {
                    "alertname": "FleetmarkStartError",
                    "eval_time": "4m",
                    "exp_alerts": [
                        {
                            "exp_labels": {
                                "severity": "info",
                                "target": "db1",
                                "step": "qr100",
                                "host": "load2",
                            },
                            "exp_annotations": {
                                "summary": "load2 began qr100 at the wrong time",
                                "description": "Off the release time by 80ms.",
                            },
                        }
                    ],
                },
                {
                    "alertname": "FleetmarkRunDirectoryUnreadable",
                    "eval_time": "4m",
                    "exp_alerts": [],
                },
            ],
        }
    ],
}


@needs_promtool
def test_the_rules_do_what_they_say(tmp_path: Path) -> None:
    path = tmp_path / "rules_test.yml"
    path.write_text(yaml.safe_dump(RULE_TESTS))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def names_used(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w:])fleetmark_[a-z0-9_]+", text))


def test_dashboard_and_rules_use_only_metrics_that_exist(run: GrowingRun) -> None:
    existing = {name for name, _ in samples_of(exposition(run))}
    dashboard = json.loads(dashboard_path().read_text())
    expressions = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    expressions += [a["expr"] for a in dashboard["annotations"]["list"]]
    expressions += [str(v.get("definition", "")) for v in dashboard["templating"]["list"]]
    used = names_used("\n".join(expressions))
    assert len(used) > 15
    assert used - existing == set()
    groups = yaml.safe_load(rules_path().read_text())["groups"]
    used = names_used("\n".join(rule["expr"] for group in groups for rule in group["rules"]))
    assert used - existing == set()


def test_every_metric_is_documented(run: GrowingRun) -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    names = {f.name for f in text_string_to_metric_families(exposition(run))}
    # A counter's family is named without the suffix that its series carry.
    missing = {name for name in names if f"`{name}`" not in page and f"`{name}_total`" not in page}
    assert missing == set()


def test_the_dashboard_is_one_that_can_be_shared(run: GrowingRun) -> None:
    dashboard = json.loads(dashboard_path().read_text())
    assert dashboard["uid"] == "fleetmark-run"
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identifiers)) == len(identifiers)
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"${datasource}"}


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
