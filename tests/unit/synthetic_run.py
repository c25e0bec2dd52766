"""A small run directory in the stored format, made up but deterministic by its seed.

Fleet, plan and directory names come from the real plan; the numbers of each stream follow from
the options, so that a test knows what must come out.
"""

import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetmark import plan as planning
from fleetmark import store
from fleetmark.experiment import Build, Config, Experiment, Target
from fleetmark.inventory import Fleet, Host
from fleetmark.workloads import Step
from fleetmark.workloads.insert_benchmark import InsertBenchmark
from fleetmark_agent import histogram
from fleetmark_agent.job import Load, Stream

T0 = 1_780_000_000.0
SERVER_CPU = 0.6
DISK = "nvme0n1"


@dataclass(frozen=True)
class Options:
    """What the made-up run looks like.

    `offsets` are the hosts' clock errors, `late` how long after T0 a host begins, both in
    seconds. `slow_inserts` holds, by (config, step), the share of the asked rate that is
    reached. `lost_journals` are (trial, step, host) whose job was never gathered.
    """

    seed: int = 1
    configs: tuple[str, ...] = ("dw1", "dw0")
    targets: int = 1
    load_hosts: int = 2
    repeats: int = 1
    clients: int = 4
    rows_i0: int = 6_000
    seconds: float = 6.0
    query_rates: tuple[int, ...] = (100, 500)
    offsets: dict[str, float] = field(default_factory=lambda: {"load1": 0.25, "db1": -0.1})
    late: dict[str, float] = field(default_factory=dict)
    slow_inserts: dict[tuple[str, str], float] = field(default_factory=dict)
    lost_journals: tuple[tuple[str, str, str], ...] = ()
    taints: tuple[tuple[str, str, str, str], ...] = ()
    stall: bool = False
    ended: bool = True


def _experiment(options: Options) -> Experiment:
    per_target = options.load_hosts
    targets = [
        Target(
            name=f"db{n}",
            db=f"db{n}",
            load=[f"load{(n - 1) * per_target + i}" for i in range(1, per_target + 1)],
        )
        for n in range(1, options.targets + 1)
    ]
    extra = {
        name: {"innodb_doublewrite": "ON" if name == "dw1" else "OFF"} for name in options.configs
    }
    workload = InsertBenchmark.model_validate(
        {
            "clients": options.clients,
            "rows_i0": options.rows_i0,
            "rows_i1": 3_000,
            "rows_i2": 600,
            "query_rates": list(options.query_rates),
            "query_seconds": options.seconds,
            "wait_seconds": 2.0,
        }
    )
    return Experiment(
        fleetmark=1,
        name="doublewrite",
        description="What does the doublewrite buffer cost with sync on commit?",
        targets=targets,
        builds=[Build(name="mariadb")],
        configs=[
            Config(name=name, set={"innodb_flush_log_at_trx_commit": 1, **extra[name]})
            for name in options.configs
        ],
        workloads=[workload],
        repeats=options.repeats,
    )


def make_plan(options: Options) -> planning.Plan:
    """The plan of the made-up run, by the real planner."""
    experiment = _experiment(options)
    assert isinstance(experiment.targets, list)
    names = [h for t in experiment.targets for h in (t.db, *t.load)]
    fleet = Fleet("synthetic.yml", {n: Host(n, "127.0.0.1") for n in names}, {"all": names})
    return planning.make_plan(experiment, fleet, Path())


def write(results: Path, options: Options = Options()) -> store.RunDirectory:
    """Write the whole run directory below `results` and return it."""
    run = store.create(results, f"20261201T101500Z-{options.seed:04x}")
    plan = make_plan(options)
    store.write_json(run.plan_json, planning.to_json(plan))
    store.write_atomic(run.experiment_yaml, b"fleetmark: 1\nname: doublewrite\n")
    partial = bool(options.lost_journals)
    store.write_json(run.run_json, _run_json(run, plan, options, partial))
    ledger = [{"seq": 0, "t": T0 - 60, "event": "run_started"}]
    store.write_atomic(run.ledger, "".join(json.dumps(r) + "\n" for r in ledger).encode())
    for host in plan.hosts:
        store.write_json(run.host(host) / "facts.json", _facts(host))
    clock = T0
    for trial in plan.trials:
        clock = _write_trial(run, trial, plan.target(trial.target), options, clock)
    if options.ended:
        store.write_sums(run)
    return run


def _run_json(
    run: store.RunDirectory, plan: planning.Plan, options: Options, partial: bool
) -> dict[str, Any]:
    state = "partial" if partial else "complete"
    return {
        "version": 1,
        "run": run.run_id,
        "state": state if options.ended else "running",
        "experiment": plan.experiment,
        "started": "2026-12-01T10:15:00Z",
        "ended": "2026-12-01T10:27:30Z" if options.ended else None,
        "command": ["fleetmark", "run", "doublewrite.yaml"],
        "fleetmark": "0.1.0",
        "python": "3.11.2",
        "packages": {"pyarrow": "26.0.1"},
        "controller": "control1",
        "partial_because": ["a load host sent nothing"] if partial else [],
    }


def _facts(host: str) -> dict[str, Any]:
    place = {
        "path": "/var/lib/fleetmark",
        "filesystem": "ext4",
        "device": f"/dev/{DISK}p1",
        "mount_options": ["rw", "noatime"],
        "free_bytes": 400_000_000_000,
        "scheduler": "none",
    }
    return {
        "version": 1,
        "hostname": host,
        "boot_id": f"boot-{host}",
        "kernel": "6.1.0-30-amd64",
        "os": "Debian 12",
        "architecture": "x86_64",
        "virtualization": None,
        "python": "3.11.2",
        "cpu": {
            "model": "Example CPU 9000",
            "logical": 8,
            "cores": 8,
            "sockets": 1,
            "threads_per_core": 1,
            "numa_nodes": 1,
            "smt_active": False,
            "governor": "performance" if host.startswith("db") else None,
        },
        "memory_bytes": 34_359_738_368,
        "swap_bytes": 0,
        "swappiness": 1,
        "clocksource": "tsc",
        "base": place,
        "data": place,
        "disks": [{"name": DISK, "model": "Example SSD", "size_bytes": 960_000_000_000}],
        "tools": {"sysbench": "1.0.20", "fio": "3.33", "mariadbd": "10.11.14", "mysqld": None},
        "listening_ports": [22],
        "agent": "0.1.0",
    }


def _write_trial(
    run: store.RunDirectory,
    trial: planning.Trial,
    target: Target,
    options: Options,
    clock: float,
) -> float:
    directory = run.trial(trial.id)
    taints = [
        {"step": step, "kind": kind, "text": text}
        for name, step, kind, text in options.taints
        if name == trial.id and not step
    ]
    doublewrite = "ON" if trial.config == "dw1" else "OFF"
    store.write_json(
        directory / "trial.json",
        {
            "version": 1,
            "id": trial.id,
            "target": trial.target,
            "build": trial.build,
            "config": trial.config,
            "workload": trial.workload,
            "repeat": trial.repeat,
            "db": target.db,
            "load": target.load,
            "attempt": 1,
            "state": "ok",
            "started": "2026-12-01T10:16:00Z",
            "ended": "2026-12-01T10:20:00Z",
            "instance": {
                "version": "10.11.14-MariaDB",
                "version_comment": "Debian 12",
                "flavour": "mariadb",
                "port": 3306,
                "socket": "/run.sock",
                "pid": 4711,
                "data_dir": "/var/lib/fleetmark/data",
                "mismatches": [],
                "start_seconds": 1.4,
                "command": ["/usr/sbin/mariadbd", "--defaults-file=my.cnf"],
            },
            "rendered_config": f"[mysqld]\ninnodb_flush_log_at_trx_commit = 1\n"
            f"innodb-doublewrite = {doublewrite}\n",
            "stop": {
                "clean": True,
                "seconds": 0.8,
                "data_bytes": 260_000_000,
                "database_bytes": 41_000_000,
                "error_log_tail": "",
            },
            "taints": taints,
        },
    )
    variables = {"innodb_doublewrite": doublewrite, "innodb_flush_log_at_trx_commit": "1"}
    variables |= {"max_connections": "200", "innodb_page_size": "16384"}
    store.write_json(directory / "variables.json", variables)
    for host in (target.db, *target.load):
        for moment in ("before", "after"):
            store.write_json(
                run.host(host) / f"contract-{trial.id}-{moment}.json",
                {"version": 1, "deviations": [], "checked": ["governor", "kernel"]},
            )
    for number, step in enumerate(trial.steps, 1):
        clock = _Step(run, trial, target, options, clock).write(f"{number:02d}-{step.name}", step)
    return clock


class _Step:
    """Writes one step: journals of all hosts, then step.json."""

    def __init__(
        self,
        run: store.RunDirectory,
        trial: planning.Trial,
        target: Target,
        options: Options,
        t0: float,
    ) -> None:
        self.run, self.trial, self.target = run, trial, target
        self.options, self.t0 = options, t0
        # Seeded by text: hash() of a string differs between processes.
        self.random = random.Random(f"{options.seed} {trial.id} {t0}")
        self.factor = 1.35 if trial.config == "dw0" else 1.0

    def write(self, directory: str, step: Step) -> float:
        hosts: dict[str, Any] = {}
        spans = []
        end = self.t0 + (step.expected_seconds if step.kind == "settle" else 0.0)
        for host, load in zip(self.target.load, step.loads, strict=False):
            first = self.t0 + self.options.late.get(host, 0.0004)
            last = first + self._length(step, load)
            spans.append((first, last))
            end = max(end, last)
            self._journal(directory, host, self._load_lines(step, load, first, last))
            hosts[host] = self._proof(host, "load", first, last)
        self._journal(directory, self.target.db, self._db_lines(end))
        hosts[self.target.db] = self._proof(self.target.db, "db", None, None)
        start, stop = max((s[0] for s in spans), default=0), min((s[1] for s in spans), default=0)
        longest = max((s[1] - s[0] for s in spans), default=0)
        overlap = {"start": start, "end": stop, "seconds": stop - start}
        taints = [
            {"kind": kind, "text": text}
            for name, where, kind, text in self.options.taints
            if name == self.trial.id and where == directory
        ]
        store.write_json(
            self.run.trial(self.trial.id) / directory / "step.json",
            {
                "version": 1,
                "step": directory,
                "name": step.name,
                "state": "ok",
                "t0": self.t0,
                "hosts": hosts,
                "overlap": {**overlap, "share": (stop - start) / longest} if spans else None,
                "taints": taints,
            },
        )
        return end + 5.0

    def _length(self, step: Step, load: Load) -> float:
        if step.name == "l.x":
            return 1.5
        if step.sla is None:
            # Insert steps end by count: a faster config is done earlier.
            return self.options.seconds / self.factor
        share = self.options.slow_inserts.get((self.trial.config, step.name), 1.0)
        return self.options.seconds / share

    def _rate(self, step: Step, load: Load, stream: Stream, seconds: float) -> tuple[float, int]:
        """Operations a second of a stream on a host, and rows an operation."""
        per_commit = int(load.options["rows_per_commit"])
        if stream.role == "index":
            return stream.threads / seconds, self.options.rows_i0
        if stream.role in ("range", "point"):
            return 900.0 * stream.threads * self.factor, 10
        rows = int(load.options["rows_per_client"]) * stream.threads
        return rows / per_commit / seconds, per_commit

    def _load_lines(
        self, step: Step, load: Load, first: float, last: float
    ) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        ends = []
        for stream in load.streams:
            records, end = self._stream(step, load, stream, first, last)
            lines += records
            ends.append(end)
        ticks = max(1, math.ceil(last - self.t0))
        lines += [_host_line(self.t0 + n, 0.5) for n in range(1, ticks + 1)]
        lines.sort(key=lambda line: float(line["t"]))
        return [*lines, *ends, _ended(last, 0.8 * (last - first))]

    def _stream(
        self, step: Step, load: Load, stream: Stream, first: float, last: float
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        rate, rows_each = self._rate(step, load, stream, last - first)
        ticks = [self.t0 + n for n in range(1, math.ceil(last - self.t0))] + [last]
        done, before = 0, self.t0
        lines = []
        total: histogram.Sparse = {}
        highest = summed = 0.0
        for tick in ticks:
            target = round(rate * (tick - first)) if tick < last else round(rate * (last - first))
            if stream.role == "index":
                target = stream.threads if tick == last else 0
            count = max(0, target - done)
            if self.options.stall and stream.name == "query" and 3 <= tick - self.t0 < 4:
                count = 0
            service: histogram.Sparse = {}
            for _ in range(count):
                value = self._latency(stream)
                summed += value
                highest = max(highest, value)
                bucket = histogram.bucket_of(value)
                service[bucket] = service.get(bucket, 0) + 1
            done += count
            total = histogram.merge([total, service])
            lines.append(
                _load_line(stream, tick, tick - before, count, rows_each, done, service, first)
            )
            before = tick
        end = {
            "t": last,
            "kind": "stream_end",
            "stream": stream.name,
            "threads": stream.threads,
            "operations": done,
            "rows": done * rows_each,
            "statements": done,
            "errors": {},
            "retries": 0,
            "reconnects": 0,
            "first_event": first,
            "last_event": last,
            "service": histogram.to_pairs(total),
            "response": histogram.to_pairs(total),
            "service_sum_us": summed,
            "service_max_us": highest,
            "response_sum_us": summed,
            "response_max_us": highest,
            "user": [0.0] * 12,
        }
        return lines, end

    def _latency(self, stream: Stream) -> float:
        median = {"insert": 2_500.0, "delete": 2_600.0, "index": 1_400_000.0}.get(
            stream.role, 800.0
        )
        slow = 40.0 if self.random.random() < 0.002 else 1.0
        return median / self.factor * slow * math.exp(self.random.gauss(0.0, 0.35))

    def _db_lines(self, end: float) -> list[dict[str, Any]]:
        lines = []
        for n in range(1, max(1, math.ceil(end - self.t0)) + 1):
            lines.append(_host_line(self.t0 + n, 2.0))
            lines.append(
                {
                    "t": self.t0 + n,
                    "kind": "dbms",
                    "interval_seconds": 1.0,
                    "status": {"Innodb_data_fsyncs": 120.0, "Questions": 4_000.0},
                    "process": {"cpu_seconds": SERVER_CPU, "rss_bytes": 512_000_000 + n},
                    "query_seconds": 0.001,
                }
            )
        return [*lines, _ended(end, None)]

    def _journal(self, directory: str, host: str, lines: list[dict[str, Any]]) -> None:
        if (self.trial.id, directory, host) in self.options.lost_journals:
            return
        offset = self.options.offsets.get(host, 0.0)
        head = [
            {"t": self.t0 - 3, "kind": "armed", "pid": 1, "agent": "0.1.0", "sysbench": "1.0.20"},
            {"t": self.t0 - 2, "kind": "ready", "threads": 4, "seconds": 0.2},
            {"t": self.t0 - 1, "kind": "released", "at": self.t0 + offset},
        ]
        out = []
        for number, line in enumerate([*head, *lines]):
            shifted = dict(line)
            for name in ("t", "first_event", "last_event"):
                if shifted.get(name) is not None:
                    shifted[name] = shifted[name] + offset
            out.append(json.dumps({"seq": number, **shifted}))
        path = self.run.step(self.trial.id, directory, host) / "journal.jsonl"
        store.write_atomic(path, ("\n".join(out) + "\n").encode())

    def _proof(
        self, host: str, role: str, first: float | None, last: float | None
    ) -> dict[str, Any]:
        return {
            "role": role,
            "offset_seconds": self.options.offsets.get(host, 0.0),
            "offset_bound_seconds": 0.00012,
            "round_trip_seconds": 0.00024,
            "release_confirmed_seconds_before_t0": 0.8,
            "start_error_seconds": None if first is None else first - self.t0,
            "first_event": first,
            "last_event": last,
            "ended": {"reason": "completed", "class": "ok"},
        }


def _load_line(  # noqa: PLR0917 (one argument a field)
    stream: Stream,
    tick: float,
    interval: float,
    count: int,
    rows_each: int,
    done: int,
    service: histogram.Sparse,
    first: float,
) -> dict[str, Any]:
    return {
        "t": tick,
        "kind": "load",
        "stream": stream.name,
        "interval_seconds": interval,
        "threads": stream.threads,
        "operations": count,
        "rows": count * rows_each,
        "statements": count,
        "errors": {},
        "retries": 0,
        "reconnects": 0,
        "service": histogram.to_pairs(service),
        "response": histogram.to_pairs(service),
        "lag_seconds": 0.0,
        "total_operations": done,
        "total_rows": done * rows_each,
        "first_event": first if first < tick else None,
        "user": [0.0] * 12,
    }


def _host_line(t: float, busy: float) -> dict[str, Any]:
    disk = {"reads": 100, "read_bytes": 1_638_400, "writes": 400, "write_bytes": 6_553_600}
    return {
        "t": t,
        "kind": "host",
        "interval_seconds": 1.0,
        "cpu": {
            "user": busy * 0.7,
            "nice": 0.0,
            "system": busy * 0.3,
            "idle": 8 - busy,
            "iowait": 0,
        },
        "cpus": 8,
        "context_switches": 20_000,
        "memory": {"total_bytes": 1 << 35, "available_bytes": 1 << 34, "dirty_bytes": 1 << 20},
        "disks": {DISK: {**disk, "flushes": 120, "busy_seconds": 0.3}, "sda": {"reads": 7}},
        "network": {"eth0": {"rx_bytes": 1_000_000, "tx_bytes": 2_000_000}},
        "pressure": {},
        "throttled": 0,
        "cost_seconds": 0.004,
    }


def _ended(t: float, cpu: float | None) -> dict[str, Any]:
    return {
        "t": t,
        "kind": "ended",
        "reason": "completed",
        "class": "ok",
        "exit_code": 0,
        "signal": None,
        "message": "",
        "load_cpu_seconds": cpu,
        "sysbench_events": None,
    }
