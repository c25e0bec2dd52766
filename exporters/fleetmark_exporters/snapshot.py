"""What a run looks like at one moment: plain values, made by the controller's `watch`.

Times are seconds since the epoch on the controller's clock. Histograms are those of
`fleetmark_agent.histogram`: bucket -> count, over the whole step so far.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

StepState = Literal["running", "ended"]
SlaState = Literal["ok", "missed", "undecided"]

RUN_STATES = (
    "planned",
    "provisioning",
    "running",
    "complete",
    "partial",
    "interrupted",
    "failed",
)
SLA_STATES: tuple[SlaState, ...] = ("ok", "missed", "undecided")


@dataclass(frozen=True)
class StreamSnapshot:
    """One stream on one load host. Counts are totals of the step so far.

    The rates and `worst_us` belong to the last interval; `worst_us` is the upper bound of
    the highest histogram bucket in use, `step_worst_us` the same over the whole step.
    """

    stream: str
    host: str
    threads: int = 0
    operations: int = 0
    rows: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0
    reconnects: int = 0
    service: Mapping[int, int] = field(default_factory=dict)
    response: Mapping[int, int] = field(default_factory=dict)
    lag_seconds: float = 0.0
    operations_per_second: float = 0.0
    rows_per_second: float = 0.0
    worst_us: float = 0.0
    step_worst_us: float = 0.0
    ended: bool = False


@dataclass(frozen=True)
class SlaSnapshot:
    """The rate that a stream must reach, and what it reached.

    `ratio` is rows a second over the real duration, divided by `rate_per_second`; None before
    the first interval. The state stays `undecided` until the step has ended.
    """

    stream: str
    rate_per_second: float
    minimum_ratio: float
    ratio: float | None
    state: SlaState


@dataclass(frozen=True)
class StepSnapshot:
    """One step. The rates and `total` count `measure` of `measure_stream` over all hosts.

    `rate_now` is that of the last interval (0 after the end), `rate_mean` is `total` over
    `elapsed_seconds`.
    """

    name: str
    directory: str
    state: StepState
    started: float
    elapsed_seconds: float
    expected_seconds: float
    expected_end: float
    progress: float
    measure: str
    measure_stream: str
    rate_now: float
    rate_mean: float
    total: int
    streams: tuple[StreamSnapshot, ...] = ()
    start_errors_seconds: Mapping[str, float] = field(default_factory=dict)
    sla: SlaSnapshot | None = None


@dataclass(frozen=True)
class TrialSnapshot:
    """The trial that the shown steps belong to; `number` counts from 1 within the target."""

    id: str
    build: str
    config: str
    workload: str
    repeat: int
    number: int
    attempt: int


@dataclass(frozen=True)
class TargetSnapshot:
    """One target. `steps` are the steps to show, oldest first, the current one last.

    `activity` says in words what is being done; `rates` are the last values of the current
    step's measured rate, one an interval; `trials` counts trials by state (planned, running,
    ok, partial, failed); `silent_seconds` names load hosts that sent nothing for a while.
    """

    name: str
    trial: TrialSnapshot | None
    activity: str
    steps: tuple[StepSnapshot, ...]
    rates: tuple[float, ...]
    trials: Mapping[str, int]
    taints: Mapping[str, int]
    silent_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def step(self) -> StepSnapshot | None:
        """The step that runs, or the last one that ran."""
        return self.steps[-1] if self.steps else None


@dataclass(frozen=True)
class RunSnapshot:
    """One run. `last_news` is when anything of it was last heard."""

    run: str
    experiment: str
    version: str
    state: str
    started: float | None
    ended: float | None
    expected_end: float | None
    last_news: float | None
    targets: tuple[TargetSnapshot, ...] = ()
    host_failures: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
