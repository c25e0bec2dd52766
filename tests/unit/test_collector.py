"""The Prometheus side: metrics of a snapshot, buckets, server, rules, dashboard."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from growing_run import T0, TRIAL, GrowingRun, busy_run, samples_of, value
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fleetmark.watch import RunWatcher
from fleetmark_agent import histogram
from fleetmark_exporters import dashboard_path, rules_path
from fleetmark_exporters.buckets import BOUNDS_US, cumulative, sum_seconds
from fleetmark_exporters.collector import RunCollector
from fleetmark_exporters.snapshot import RUN_STATES

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing")


@pytest.fixture
def run(tmp_path: Path) -> GrowingRun:
    return busy_run(tmp_path)


def exposition(run: GrowingRun) -> str:
    registry = CollectorRegistry()
    registry.register(RunCollector(RunWatcher(run.directory, lambda: T0 + 2.0).poll))
    return generate_latest(registry).decode()


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
