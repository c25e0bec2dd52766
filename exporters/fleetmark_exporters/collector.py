"""The collector of what a run publishes: a snapshot -> Prometheus metrics.

New metric objects are built for each scrape, since scrapes may overlap. Labels: `target`,
`step`, `stream`, `host`. The run's id stands in `fleetmark_run_info` alone, build and config in
`fleetmark_trial_info` alone; both are joined on `target` (docs/metrics.md), so that a long
experiment does not make a new set of series for each of its trials.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from fleetmark_agent.shm import ERROR_WORDS
from fleetmark_exporters.buckets import cumulative, sum_seconds
from fleetmark_exporters.snapshot import (
    RUN_STATES,
    SLA_STATES,
    RunSnapshot,
    StepSnapshot,
    StreamSnapshot,
    TargetSnapshot,
)

_STEP = ["target", "step"]
_STREAM = ["target", "step", "stream", "host"]

Steps = list[tuple[str, StepSnapshot]]
Streams = list[tuple[list[str], StreamSnapshot]]


class RunCollector(Collector):
    """Publishes what `read` returns. An error of `read` becomes `fleetmark_up` 0."""

    def __init__(self, read: Callable[[], RunSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """All metrics of one scrape."""
        began = time.perf_counter()
        metrics: list[Metric] = []
        up = 1.0
        try:
            metrics = metrics_of(self._read())
        # Whatever is wrong with the run directory, the scrape itself must succeed and say so.
        except Exception:
            up = 0.0
        yield GaugeMetricFamily("fleetmark_up", "Whether the run directory could be read.", up)
        yield from metrics
        yield GaugeMetricFamily(
            "fleetmark_scrape_duration_seconds",
            "Time taken to read what is new in the run directory and to build the metrics.",
            time.perf_counter() - began,
        )


def metrics_of(run: RunSnapshot) -> list[Metric]:
    """The metrics of one snapshot."""
    steps = [(target.name, step) for target in run.targets for step in target.steps]
    streams = [
        ([target, step.name, stream.stream, stream.host], stream)
        for target, step in steps
        for stream in step.streams
    ]
    return [
        *_run(run),
        *_targets(run.targets),
        *_steps(steps),
        *_sla(steps),
        *_counts(streams),
        *_durations(streams),
    ]


def _run(run: RunSnapshot) -> Iterator[Metric]:
    info = InfoMetricFamily("fleetmark_run", "The run that is published.")
    info.add_metric(
        [], {"run": run.run, "experiment": run.experiment, "fleetmark_version": run.version}
    )
    yield info
    state = GaugeMetricFamily(
        "fleetmark_run_state",
        "1 for the state that the run is in, 0 for the others.",
        None,
        ["state"],
    )
    for name in RUN_STATES:
        state.add_metric([name], float(run.state == name))
    yield state
    for name, text, value in (
        ("start", "When the run was started.", run.started),
        ("end", "When the run ended; missing while it goes on.", run.ended),
        ("expected_end", "When the run is expected to end.", run.expected_end),
        ("last_news", "When anything of the run was last heard.", run.last_news),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"fleetmark_run_{name}_timestamp_seconds", text, value)


def _targets(targets: tuple[TargetSnapshot, ...]) -> Iterator[Metric]:
    info = InfoMetricFamily(
        "fleetmark_trial", "The trial that the steps of a target belong to.", labels=["target"]
    )
    trials = GaugeMetricFamily(
        "fleetmark_trials", "Trials of a target by state.", None, ["target", "state"]
    )
    taints = CounterMetricFamily(
        "fleetmark_taints", "Reasons why results must not be trusted.", None, ["target", "kind"]
    )
    for target in targets:
        if trial := target.trial:
            labels = {"trial": trial.id, "build": trial.build, "config": trial.config}
            labels |= {"workload": trial.workload, "repeat": str(trial.repeat)}
            info.add_metric([target.name], labels)
        for state, count in target.trials.items():
            trials.add_metric([target.name, state], count)
        for kind, count in target.taints.items():
            taints.add_metric([target.name, kind], count)
    yield from (info, trials, taints)


def _steps(steps: Steps) -> Iterator[Metric]:
    running = GaugeMetricFamily("fleetmark_step_running", "1 while the step runs.", None, _STEP)
    progress = GaugeMetricFamily(
        "fleetmark_step_progress_ratio",
        "Share of the step that is done, by rows where they are planned, else by time.",
        None,
        _STEP,
    )
    start = GaugeMetricFamily(
        "fleetmark_step_start_timestamp_seconds", "Release time T0 of the step.", None, _STEP
    )
    end = GaugeMetricFamily(
        "fleetmark_step_expected_end_timestamp_seconds",
        "When the step is expected to end, at the pace so far.",
        None,
        _STEP,
    )
    error = GaugeMetricFamily(
        "fleetmark_start_error_seconds",
        "First operation of a load host minus the release time, on the host's own clock.",
        None,
        [*_STEP, "host"],
    )
    for target, step in steps:
        labels = [target, step.name]
        running.add_metric(labels, float(step.state == "running"))
        progress.add_metric(labels, step.progress)
        start.add_metric(labels, step.started)
        end.add_metric(labels, step.expected_end)
        for host, seconds in step.start_errors_seconds.items():
            error.add_metric([*labels, host], seconds)
    yield from (running, progress, start, end, error)


def _sla(steps: Steps) -> Iterator[Metric]:
    names = [*_STEP, "stream"]
    ratio = GaugeMetricFamily(
        "fleetmark_sla_ratio",
        "Rows a second of a stream over the real duration, divided by the rate asked for.",
        None,
        names,
    )
    minimum = GaugeMetricFamily(
        "fleetmark_sla_minimum_ratio", "The SLA is missed below this ratio.", None, names
    )
    state = GaugeMetricFamily(
        "fleetmark_sla_state",
        "1 for the state that the SLA is in, 0 for the others; decided at the end of the step.",
        None,
        [*names, "state"],
    )
    for target, step in steps:
        if sla := step.sla:
            labels = [target, step.name, sla.stream]
            minimum.add_metric(labels, sla.minimum_ratio)
            if sla.ratio is not None:
                ratio.add_metric(labels, sla.ratio)
            for name in SLA_STATES:
                state.add_metric([*labels, name], float(sla.state == name))
    yield from (ratio, minimum, state)


def _counts(streams: Streams) -> Iterator[Metric]:
    for name, text in (
        ("operations", "Operations done in the step."),
        ("rows", "Rows that these operations wrote, deleted or read."),
        ("retries", "Operations tried again after an error."),
        ("reconnects", "Connections made again after a loss."),
    ):
        counter = CounterMetricFamily(f"fleetmark_{name}", text, None, _STREAM)
        for labels, stream in streams:
            counter.add_metric(labels, getattr(stream, name))
        yield counter
    errors = CounterMetricFamily(
        "fleetmark_errors", "Errors of the DBMS by kind.", None, [*_STREAM, "kind"]
    )
    threads = GaugeMetricFamily(
        "fleetmark_stream_threads", "Threads of the stream that run.", None, _STREAM
    )
    lag = GaugeMetricFamily(
        "fleetmark_lag_seconds", "How far the stream is behind its schedule.", None, _STREAM
    )
    for labels, stream in streams:
        # Kinds without an error too: the first one must be an increase of a series that is there.
        for kind, count in {**dict.fromkeys(ERROR_WORDS, 0), **stream.errors}.items():
            errors.add_metric([*labels, kind], count)
        threads.add_metric(labels, stream.threads)
        lag.add_metric(labels, stream.lag_seconds)
    yield from (errors, threads, lag)


def _durations(streams: Streams) -> Iterator[Metric]:
    service = HistogramMetricFamily(
        "fleetmark_operation_service_duration_seconds",
        "Duration of operations, from the moment when each was sent.",
        labels=_STREAM,
    )
    response = HistogramMetricFamily(
        "fleetmark_operation_response_duration_seconds",
        "Duration of operations, from the moment when each was due by its schedule.",
        labels=_STREAM,
    )
    for labels, stream in streams:
        service.add_metric(labels, cumulative(stream.service), sum_seconds(stream.service))
        response.add_metric(labels, cumulative(stream.response), sum_seconds(stream.response))
    yield from (service, response)
