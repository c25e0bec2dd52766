"""A snapshot -> what a person reads: a rich screen, or plain lines. Prints nothing itself."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fleetmark_exporters.snapshot import (
    RunSnapshot,
    StepSnapshot,
    StreamSnapshot,
    TargetSnapshot,
)

_BARS = "▁▂▃▄▅▆▇█"
_STATE_COLOURS = {
    "complete": "green",
    "partial": "yellow",
    "interrupted": "yellow",
    "failed": "red",
}
_SLA_COLOURS = {"ok": "green", "missed": "red", "undecided": "cyan"}


def sparkline(values: tuple[float, ...], width: int = 30) -> str:
    """The last `width` values as bars, from zero to their maximum."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in shown)


def duration(seconds: float) -> str:
    """45 s, 2:05, 3:04:05."""
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def latency(microseconds: float) -> str:
    """A latency with three digits and its unit."""
    for limit, unit, factor in ((1e3, "us", 1.0), (1e6, "ms", 1e3)):
        if microseconds < limit:
            return f"{microseconds / factor:.3g} {unit}"
    return f"{microseconds / 1e6:.3g} s"


def screen(run: RunSnapshot, now: float) -> RenderableType:
    """The whole run as one screen."""
    parts: list[RenderableType] = [_head(run, now)]
    for target in run.targets:
        parts += [Text(), _target_head(target, run.state)]
        if target.step:
            parts.append(_streams(target.step))
    for problem in warnings(run):
        parts.append(Text(f"! {problem}", style="yellow"))
    return Group(*parts)


def warnings(run: RunSnapshot) -> Iterator[str]:
    """What a person should know beside the numbers."""
    yield from (f"host failed: {text}" for text in run.host_failures)
    for target in run.targets:
        for host, seconds in target.silent_seconds.items():
            yield f"{target.name}: nothing heard from {host} for {duration(seconds)}"
        if target.taints:
            taints = ", ".join(f"{kind} {count}" for kind, count in sorted(target.taints.items()))
            yield f"{target.name}: taints: {taints}"
    yield from run.problems


def _head(run: RunSnapshot, now: float) -> Text:
    text = Text.assemble(
        (run.experiment, "bold"),
        f"  run {run.run}  ",
        (run.state, _STATE_COLOURS.get(run.state, "cyan")),
    )
    if run.started is not None:
        text.append(f"  {duration((run.ended or now) - run.started)}")
    if run.expected_end is not None:
        text.append(f", about {duration(run.expected_end - now)} left")
    return text


def _target_head(target: TargetSnapshot, state: str) -> Text:
    text = Text.assemble((target.name, "bold"), "  ")
    if trial := target.trial:
        planned = sum(target.trials.values())
        text.append(f"trial {trial.number} of {planned}  {trial.build}/{trial.config}")
        text.append(f"  {trial.workload} repeat {trial.repeat}")
    text.append(f"  {target.activity}", "cyan" if state == "running" else "dim")
    if step := target.step:
        text.append("\n  ")
        text.append_text(_step_line(step))
        if bars := sparkline(target.rates):
            text.append(f"\n  {bars}", "blue")
        if proof := _proof_line(step):
            text.append("  " if bars else "\n  ")
            text.append_text(proof)
    return text


def _step_line(step: StepSnapshot) -> Text:
    text = Text.assemble((step.name, "bold"), f"  {step.progress:.0%}")
    text.append(f"  {duration(step.elapsed_seconds)} of {duration(step.expected_seconds)}")
    if step.measure_stream:
        rate = step.rate_now if step.state == "running" else step.rate_mean
        text.append(f"  {rate:,.0f} {step.measure}/s  {step.total:,} {step.measure}")
    return text


def _proof_line(step: StepSnapshot) -> Text:
    """Start error and SLA; empty where there is neither."""
    text = Text()
    if step.start_errors_seconds:
        worst = max(step.start_errors_seconds.values(), key=abs)
        text.append(f"start error {worst * 1e3:.2f} ms  ")
    if step.sla:
        reached = "-" if step.sla.ratio is None else f"{step.sla.ratio:.1%}"
        text.append(f"SLA {reached} {step.sla.state}", _SLA_COLOURS[step.sla.state])
    return text


def _streams(step: StepSnapshot) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("  stream", no_wrap=True)
    table.add_column("host", no_wrap=True)
    # Few columns: the screen must fit a terminal of 80.
    for name in ("operations/s", "rows/s", "worst now", "worst", "behind"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("errors")
    for stream in sorted(step.streams, key=lambda s: (s.stream, s.host)):
        table.add_row(*_stream_cells(stream, step))
    return table


def _stream_cells(stream: StreamSnapshot, step: StepSnapshot) -> list[str | Text]:
    operations_per_second = stream.operations_per_second
    rows_per_second = stream.rows_per_second
    if step.state == "ended" and step.elapsed_seconds:
        operations_per_second = stream.operations / step.elapsed_seconds
        rows_per_second = stream.rows / step.elapsed_seconds
    errors = errors_text(stream)
    return [
        f"  {stream.stream}",
        stream.host,
        f"{operations_per_second:,.0f}",
        f"{rows_per_second:,.0f}",
        latency(stream.worst_us) if stream.worst_us else "-",
        latency(stream.step_worst_us) if stream.step_worst_us else "-",
        f"{stream.lag_seconds:.1f} s" if stream.lag_seconds else "-",
        Text(errors, "red") if errors else "-",
    ]


def errors_text(stream: StreamSnapshot) -> str:
    """Errors by kind, with retries and reconnects, leaving out what is zero."""
    counts = {**stream.errors, "retries": stream.retries, "reconnects": stream.reconnects}
    return ", ".join(f"{kind} {count}" for kind, count in counts.items() if count)


def plain_line(target: TargetSnapshot) -> str:
    """One line about a target, for a log."""
    parts = [target.name]
    if target.trial:
        parts.append(f"{target.trial.number}/{sum(target.trials.values())} {target.trial.id}")
    parts.append(target.activity)
    if step := target.step:
        parts.append(_step_line(step).plain)
        if proof := _proof_line(step):
            parts.append(proof.plain)
        worst = max((stream.step_worst_us for stream in step.streams), default=0.0)
        if worst:
            parts.append(f"worst {latency(worst)}")
        errors = sum(sum(stream.errors.values()) for stream in step.streams)
        parts.append(f"errors {errors}")
    return " | ".join(parts)
