"""A run directory that a test fills event by event, as conductor and gatherer would."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fleetmark import plan as planning
from fleetmark import store
from fleetmark.experiment import Build, Config, Experiment, Target
from fleetmark.inventory import Fleet, Host
from fleetmark.workloads.insert_benchmark import InsertBenchmark
from fleetmark_agent import histogram

T0 = 1_780_000_000.0
HOST_CLOCK_AHEAD_SECONDS = {"load1": 0.25, "load2": -0.5, "db1": 0.0}
TRIAL = "db1.mariadb.dw1.insert_benchmark.r1"
SECOND_TRIAL = "db1.mariadb.dw0.insert_benchmark.r1"
LOAD_HOSTS = ("load1", "load2")
STEP = "06-qr100"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def make_plan() -> planning.Plan:
    """One target of three hosts, two configs, four clients, query steps of 10 s."""
    experiment = Experiment(
        fleetmark=1,
        name="doublewrite",
        targets=[Target(name="db1", db="db1", load=list(LOAD_HOSTS))],
        builds=[Build(name="mariadb")],
        configs=[Config(name="dw1"), Config(name="dw0")],
        workloads=[
            InsertBenchmark.model_validate(
                {
                    "clients": 4,
                    "rows_i0": 1_000,
                    "rows_i1": 500,
                    "rows_i2": 100,
                    "query_rates": [100],
                    "query_seconds": 10.0,
                    "wait_seconds": 2.0,
                }
            )
        ],
    )
    names = ["db1", *LOAD_HOSTS]
    fleet = Fleet("hosts.yml", {n: Host(n, "127.0.0.1") for n in names}, {"all": names})
    return planning.make_plan(experiment, fleet, Path())


@dataclass(frozen=True)
class Interval:
    """One `load` record; every operation takes `latency_us`, twice that from when it was due."""

    operations: int
    rows: int
    latency_us: float = 1_000.0
    errors: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    lag_seconds: float = 0.0


class GrowingRun:
    """Writes a run. `t` in all methods is seconds after T0 on the controller's clock."""

    def __init__(self, results: Path, run_id: str = "20261201T101500Z-00aa") -> None:
        self.directory = store.create(results, run_id)
        self.plan = make_plan()
        self._ledger_seq = 0
        self._seq: dict[Path, int] = {}
        self._released: dict[Path, float] = {}
        self._totals: dict[tuple[Path, str], tuple[int, int]] = {}
        self._sums: dict[tuple[Path, str], histogram.Sparse] = {}
        self.state("running")
        store.write_json(self.directory.plan_json, planning.to_json(self.plan))
        self.event(-60, "run_started")

    def state(self, state: str, ended: str | None = None) -> None:
        """Write run.json."""
        document = {
            "version": 1,
            "run": self.directory.run_id,
            "state": state,
            "experiment": "doublewrite",
            "started": "2026-05-28T20:25:40Z",
            "ended": ended,
            "fleetmark": "0.1.0",
        }
        store.write_json(self.directory.run_json, document)

    def event(self, t: float, event: str, **fields: Any) -> None:
        """Append to the ledger."""
        record = {"seq": self._ledger_seq, "t": T0 + t, "event": event, **fields}
        with self.directory.ledger.open("a") as handle:
            handle.write(json.dumps(record) + "\n")
        self._ledger_seq += 1

    def begin_trial(self, t: float, trial: str = TRIAL, attempt: int = 1) -> None:
        """The trial and its database are there."""
        self.event(t, "trial_started", trial=trial, attempt=attempt)
        self.event(t, "dbms_started", trial=trial)

    def release(
        self, t: float, step: str, trial: str = TRIAL, hosts: tuple[str, ...] = LOAD_HOSTS
    ) -> None:
        """Arm and release a step at T0 + t."""
        for host in ("db1", *hosts):
            self.event(t - 1, "step_armed", trial=trial, step=step, host=host)
            path = self._journal(trial, step, host)
            self.record(path, t - 2, host, "armed", pid=1)
            at = T0 + t + HOST_CLOCK_AHEAD_SECONDS[host]
            self._released[path] = at
            self.record(path, t - 0.5, host, "released", at=at)
        self.event(t - 0.2, "step_released", trial=trial, step=step, t0=T0 + t)

    def end_step(self, t: float, step: str, trial: str = TRIAL, state: str = "ok") -> None:
        """The step is over."""
        store.write_json(self.directory.trial(trial) / step / "step.json", {"state": state})
        self.event(t, "step_ended", trial=trial, step=step, hosts=["db1", *LOAD_HOSTS])

    def _journal(self, trial: str, step: str, host: str) -> Path:
        return self.directory.step(trial, step, host) / "journal.jsonl"

    def record(self, path: Path, t: float, host: str, kind: str, **fields: Any) -> None:
        """Append a journal record; `t` becomes the host's time."""
        path.parent.mkdir(parents=True, exist_ok=True)
        seq = self._seq.get(path, 0)
        self._seq[path] = seq + 1
        at = T0 + t + HOST_CLOCK_AHEAD_SECONDS[host]
        with path.open("a") as handle:
            handle.write(json.dumps({"seq": seq, "t": at, "kind": kind, **fields}) + "\n")

    def load(
        self,
        t: float,
        place: tuple[str, str, str],
        interval: Interval,
        trial: str = TRIAL,
    ) -> None:
        """One interval of a second; `place` is (step, host, stream)."""
        step, host, stream = place
        path = self._journal(trial, step, host)
        operations, rows = self._totals.get((path, stream), (0, 0))
        operations += interval.operations
        rows += interval.rows
        self._totals[path, stream] = (operations, rows)
        service = {histogram.bucket_of(interval.latency_us): interval.operations}
        response = {histogram.bucket_of(2 * interval.latency_us): interval.operations}
        self._sums[path, stream] = histogram.merge([self._sums.get((path, stream), {}), service])
        self.record(
            path,
            t,
            host,
            "load",
            stream=stream,
            interval_seconds=1.0,
            threads=2,
            operations=interval.operations,
            rows=interval.rows,
            statements=interval.operations,
            errors=interval.errors,
            retries=interval.retries,
            reconnects=0,
            service=histogram.to_pairs(service),
            response=histogram.to_pairs(response),
            lag_seconds=interval.lag_seconds,
            total_operations=operations,
            total_rows=rows,
            first_event=self._first_event(path),
            user=[0.0] * 12,
        )

    def _first_event(self, path: Path) -> float:
        """Two milliseconds after the release, by the host's clock."""
        return self._released[path] + 0.002

    def end_stream(self, t: float, place: tuple[str, str, str], trial: str = TRIAL) -> None:
        """`stream_end` with the totals of all intervals; the last operation ended at t."""
        step, host, stream = place
        path = self._journal(trial, step, host)
        operations, rows = self._totals[path, stream]
        pairs = histogram.to_pairs(self._sums[path, stream])
        self.record(
            path,
            t,
            host,
            "stream_end",
            stream=stream,
            threads=2,
            operations=operations,
            rows=rows,
            statements=operations,
            errors={},
            retries=0,
            reconnects=0,
            first_event=self._first_event(path),
            last_event=T0 + t + HOST_CLOCK_AHEAD_SECONDS[host],
            service=pairs,
            response=pairs,
            **dict.fromkeys(
                ("service_sum_us", "service_max_us", "response_sum_us", "response_max_us"), 0.0
            ),
        )

    def end_journal(self, t: float, step: str, host: str, trial: str = TRIAL) -> None:
        """The last record."""
        self.record(self._journal(trial, step, host), t, host, "ended", reason="completed")


def query_run(run: GrowingRun, seconds: int, rows_each: int) -> None:
    """Two hosts insert `rows_each` rows a second; 400 rows a second are asked for."""
    run.begin_trial(-10)
    run.release(0, STEP)
    for second in range(1, seconds + 1):
        for host in ("load1", "load2"):
            run.load(second, (STEP, host, "insert"), Interval(rows_each // 50, rows_each))
            run.load(second, (STEP, host, "query"), Interval(900, 9_000))


def busy_run(results: Path) -> GrowingRun:
    """Two hosts, two seconds into a query step, with errors and a taint."""
    run = GrowingRun(results)
    run.begin_trial(-10)
    run.release(0, STEP)
    for host, queries in (("load1", 900), ("load2", 700)):
        run.load(1, (STEP, host, "insert"), Interval(4, 200, lag_seconds=0.5))
        run.load(1, (STEP, host, "query"), Interval(queries, queries * 10, latency_us=130.0))
        slow = Interval(50, 500, latency_us=70_000.0, errors={"deadlock": 3})
        run.load(2, (STEP, host, "query"), slow)
    run.event(2, "taint", trial=TRIAL, step=STEP, kind="clock", text="bound too wide")
    return run


def samples_of(text: str) -> Samples:
    """All samples of an exposition by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    """One sample."""
    return samples[name, frozenset(labels.items())]
