"""The Insert Benchmark: load in key order, index, random-order inserts with deletes, then
range and point queries beside a fixed rate of inserts and deletes.

Steps, sizes and rules follow M. Callaghan's benchmark as he runs it since December 2023
(smalldatum.blogspot.com/2023/12/updates-for-insert-benchmark-december.html). Departures, each
by default and each switchable: a limited stream catches up (`pacing: published` does not).
"""

from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fleetmark.workloads.step import NO_CONNECTION, SettleSpec, Sla, Step
from fleetmark.workloads.workload import Workload, share_out
from fleetmark_agent.job import Load, Stream

PROFILES: dict[str, dict[str, Any]] = {
    "cpu_bound": {"rows_i0": 10_000_000, "rows_i1": 16_000_000, "rows_i2": 4_000_000},
    "io_bound": {"rows_i0": 300_000_000, "rows_i1": 4_000_000, "rows_i2": 1_000_000},
    "tiny": {
        "clients": 4,
        "rows_i0": 150_000,
        "rows_i1": 60_000,
        "rows_i2": 12_000,
        "query_seconds": 8.0,
        "wait_seconds": 3.0,
    },
}

_BYTES_PER_ROW = 105
_BYTES_PER_INDEXED_ROW = 230
_ASSUMED_ROWS_PER_SECOND = {"l.i0": 60_000.0, "l.x": 250_000.0, "l.i1": 15_000.0, "l.i2": 4_000.0}
"""Only for the plan's estimates; a small two-core host does about this much."""

_OUTLIVE_FACTOR = 20.0


class InsertBenchmark(Workload):
    """Parameters. Rows are per client (per table, unless `one_table`)."""

    kind: ClassVar[str] = "insert_benchmark"

    profile: Literal["cpu_bound", "io_bound", "tiny"] = "tiny"
    clients: int = Field(default=12, ge=1, le=1024)
    one_table: bool = False
    engine: str = Field(default="innodb", pattern=r"^[A-Za-z]+$")
    rows_i0: int = Field(ge=1)
    rows_i1: int = Field(ge=0)
    rows_i2: int = Field(ge=0)
    rows_per_commit_i0: int = Field(default=100, ge=1)
    rows_per_commit_i1: int = Field(default=50, ge=1)
    rows_per_commit_i2: int = Field(default=5, ge=1)
    rows_per_commit_query: int = Field(default=50, ge=1)
    query_rates: list[int] = Field(default=[100, 500, 1000], min_length=1)
    query_seconds: float = Field(default=1800.0, gt=0)
    wait_seconds: float = Field(default=60.0, ge=0)
    data_length_min: int = Field(default=10, ge=1)
    data_length_max: int = Field(default=20, le=4000)
    pacing: Literal["catch_up", "published"] = "catch_up"
    on_error: Literal["retry", "count", "stop"] = "retry"
    seed: int = 1
    steps_only: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_profile(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {**PROFILES.get(data.get("profile", "tiny"), {}), **data}

    @model_validator(mode="after")
    def _check(self) -> "InsertBenchmark":
        if self.data_length_min > self.data_length_max:
            raise ValueError("data_length_min is above data_length_max")
        known = self._names()
        for name in self.steps_only:
            if name not in known:
                raise ValueError(f"steps_only: no step is named {name!r}; steps: {known}")
        return self

    def _names(self) -> list[str]:
        queries = [f"{kind}{rate}" for rate in self.query_rates for kind in ("qr", "qp")]
        return ["l.i0", "l.x", "l.i1", "l.i2", "wait", *queries]

    @property
    def tables(self) -> list[str]:
        """The tables' names: one a client, or one shared."""
        return ["pi1"] if self.one_table else [f"pi{n}" for n in range(1, self.clients + 1)]

    def steps(self, load_hosts: int) -> list[Step]:
        """l.i0, l.x, l.i1, l.i2, wait, then a range and a point query step for each rate."""
        shares = share_out(self.clients, load_hosts)
        steps = [
            self._insert_step(shares, "l.i0", self.rows_i0, self.rows_per_commit_i0, False),
            self._index_step(shares),
            self._insert_step(shares, "l.i1", self.rows_i1, self.rows_per_commit_i1, True),
            self._insert_step(shares, "l.i2", self.rows_i2, self.rows_per_commit_i2, True),
            self._wait_step(),
        ]
        for rate in self.query_rates:
            steps.append(self._query_step(shares, f"qr{rate}", "range", rate))
            steps.append(self._query_step(shares, f"qp{rate}", "point", rate))
        wanted = self.steps_only or self._names()
        return [step for step in steps if step.name in wanted]

    def _load(self, first: int, count: int, streams: list[Stream], **options: Any) -> Load:
        return Load(
            script="insert_benchmark",
            connection=NO_CONNECTION,
            streams=streams,
            options={
                "first_client": first,
                "clients": count,
                "all_clients": self.clients,
                "one_table": self.one_table,
                "engine": self.engine,
                "data_length_min": self.data_length_min,
                "data_length_max": self.data_length_max,
                "seed": self.seed,
                **options,
            },
            pacing=self.pacing,
            on_error=self.on_error,
        )

    def _insert_step(
        self, shares: list[tuple[int, int]], name: str, rows: int, per_commit: int, delete: bool
    ) -> Step:
        loads = []
        for first, count in shares:
            streams = [Stream("insert", count, "insert")]
            if delete:
                streams.append(Stream("delete", count, "delete"))
            loads.append(
                self._load(
                    first,
                    count,
                    streams,
                    phase=name,
                    rows_per_client=rows,
                    rows_per_commit=per_commit,
                    create_table=name == "l.i0",
                )
            )
        seconds = rows * self.clients / _ASSUMED_ROWS_PER_SECOND[name]
        bytes_per_row = _BYTES_PER_INDEXED_ROW if delete else _BYTES_PER_ROW
        return Step(
            name=name,
            kind="load",
            loads=loads,
            measure_stream="insert",
            expected_seconds=seconds,
            deadline_seconds=_deadline(seconds),
            grown_bytes=rows * self.clients * bytes_per_row,
        )

    def _index_step(self, shares: list[tuple[int, int]]) -> Step:
        loads = []
        for first, count in shares:
            # One shared table has one index build; the first client does it.
            threads = (1 if first == 1 else 0) if self.one_table else count
            if threads:
                streams = [Stream("index", threads, "index")]
                loads.append(self._load(first, count, streams, phase="l.x", rows_per_commit=100))
        rows = self.rows_i0 * self.clients
        seconds = rows / _ASSUMED_ROWS_PER_SECOND["l.x"]
        return Step(
            name="l.x",
            kind="load",
            loads=loads,
            measure_stream="index",
            expected_seconds=seconds,
            deadline_seconds=_deadline(seconds),
            grown_bytes=rows * (_BYTES_PER_INDEXED_ROW - _BYTES_PER_ROW),
        )

    def _wait_step(self) -> Step:
        # min(1200, 60 + rows / 1e6) seconds, as published; wait_seconds stands for the 60.
        seconds = min(1200.0, self.wait_seconds + self.rows_i0 * self.clients / 1e6)
        return Step(
            name="wait",
            kind="settle",
            loads=[],
            settle=SettleSpec(self.tables, seconds, self.engine),
            expected_seconds=seconds,
            deadline_seconds=_deadline(seconds),
        )

    def _query_step(self, shares: list[tuple[int, int]], name: str, query: str, rate: int) -> Step:
        loads = []
        for first, count in shares:
            rows_per_second = float(rate * count)
            operations = rows_per_second / self.rows_per_commit_query
            streams = [
                Stream("insert", count, "insert", operations),
                Stream("delete", count, "delete", operations),
                Stream("query", count, query, defining=False),
            ]
            loads.append(
                self._load(
                    first,
                    count,
                    streams,
                    phase=name,
                    rows_per_client=round(self.query_seconds * rate),
                    rows_per_commit=self.rows_per_commit_query,
                )
            )
        total = float(rate * self.clients)
        return Step(
            name=name,
            kind="load",
            loads=loads,
            measure_stream="query",
            measure="operations",
            sla=Sla("insert", total),
            expected_seconds=self.query_seconds,
            deadline_seconds=_deadline(self.query_seconds),
            grown_bytes=round(total * self.query_seconds) * _BYTES_PER_INDEXED_ROW,
        )


def _deadline(expected_seconds: float) -> float:
    """A step is waited for, not killed; this is where a hung one ends."""
    return 600.0 + expected_seconds * _OUTLIVE_FACTOR
