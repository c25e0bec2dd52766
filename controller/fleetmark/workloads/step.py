"""What a workload is made of: steps, as the plan lists them and the conductor runs them."""

from dataclasses import dataclass
from typing import Literal

from fleetmark_agent.job import Connection, Load

NO_CONNECTION = Connection(host="", port=0, user="", database="")
"""Placeholder in planned loads; the conductor fills in the instance that it started."""


@dataclass(frozen=True)
class Sla:
    """The rate that a background stream must reach, over the real duration of the step.

    `rate_per_second` is in rows a second over all load hosts; the step misses its SLA below
    `minimum_ratio` of it.
    """

    stream: str
    rate_per_second: float
    minimum_ratio: float = 0.95


@dataclass(frozen=True)
class SettleSpec:
    """The wait between load and queries (see `fleetmark_agent.job.Settle`)."""

    tables: list[str]
    minimum_seconds: float
    engine: str


@dataclass(frozen=True)
class Step:
    """One measured phase of a trial.

    `loads` holds one load for each load host, in order; empty for a settle step.
    The number that the report shows is `measure` (`rows` or `operations`) of `measure_stream`
    over the overlap window, a second.
    """

    name: str
    kind: Literal["load", "settle"]
    loads: list[Load]
    measure_stream: str = ""
    measure: Literal["rows", "operations"] = "rows"
    settle: SettleSpec | None = None
    sla: Sla | None = None
    expected_seconds: float = 0.0
    deadline_seconds: float = 0.0
    grown_bytes: int = 0
