"""One step of the made-up run: the journals of its hosts, then step.json."""

import json
import math
import random
from dataclasses import dataclass, field
from typing import Any

from fleetmark import plan as planning
from fleetmark import store
from fleetmark.experiment import Target
from fleetmark.workloads import Step
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


class StepWriter:
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
