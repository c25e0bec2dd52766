"""The proof of a step: start errors, overlap, and the taints that follow from them. Pure.

All times of a host are moved to the controller's clock by its offset before they are compared.
"""

from dataclasses import dataclass
from typing import Any

from fleetmark.clock import Offset, drift_seconds
from fleetmark.experiment import Policy
from fleetmark.workloads import Step
from fleetmark_agent import journal
from fleetmark_agent.job import Job

CLIENT_CPU_LIMIT = 0.80
"""Above this share of a load host's CPUs the client is taken to limit what it measures."""


@dataclass(frozen=True)
class HostEvidence:
    """What one host left of a step. Offsets are None where they could not be measured."""

    name: str
    role: str
    job: Job
    records: list[dict[str, Any]]
    cpus: int
    before: Offset | None = None
    after: Offset | None = None
    confirmed_seconds_before_t0: float | None = None

    @property
    def ended(self) -> dict[str, Any] | None:
        """The last record, if the job came to an end."""
        last = self.records[-1] if self.records else {}
        return last if last.get("kind") == journal.ENDED else None

    @property
    def released_at(self) -> float | None:
        """T0 on the host's own clock."""
        return next((r["at"] for r in self.records if r["kind"] == journal.RELEASED), None)

    @property
    def streams(self) -> list[dict[str, Any]]:
        """What each stream came to."""
        return [r for r in self.records if r["kind"] == journal.STREAM_END]

    @property
    def start_error_seconds(self) -> float | None:
        """First event minus T0, the worst of the streams that define the step."""
        if self.job.load is None or self.released_at is None:
            return None
        defining = {s.name for s in self.job.load.streams if s.defining}
        firsts = self._first_events()
        errors = [firsts[name] - self.released_at for name in defining if name in firsts]
        return max(errors, key=abs) if errors else None

    def _first_events(self) -> dict[str, float]:
        """First event of each stream, from its intervals too: a journal may have no end."""
        kinds = (journal.LOAD, journal.STREAM_END)
        return {
            record["stream"]: record["first_event"]
            for record in self.records
            if record["kind"] in kinds and record["first_event"] is not None
        }

    def span(self) -> tuple[float, float] | None:
        """First and last event over all streams, on the controller's clock."""
        spans = self.stream_spans()
        return (min(s for s, _ in spans), max(e for _, e in spans)) if spans else None

    def stream_spans(self) -> list[tuple[float, float]]:
        """First and last event of each stream, on the controller's clock."""
        shift = self.before.seconds if self.before else 0.0
        return [
            (s["first_event"] - shift, s["last_event"] - shift)
            for s in self.streams
            if s["first_event"] is not None and s["last_event"] is not None
        ]


@dataclass(frozen=True)
class Overlap:
    """The window in which all streams of all hosts ran, on the controller's clock."""

    start: float
    end: float
    share: float

    @property
    def seconds(self) -> float:
        """Length; 0 when there was no such window."""
        return max(0.0, self.end - self.start)

    def record(self) -> dict[str, float]:
        """As stored in step.json."""
        return {
            "start": self.start,
            "end": self.end,
            "seconds": self.seconds,
            "share": self.share,
        }


def overlap_of(evidence: list[HostEvidence]) -> Overlap | None:
    """From the last start to the first end; share of the longest stream. None without events."""
    spans = [span for host in evidence for span in host.stream_spans()]
    if not spans:
        return None
    start = max(first for first, _ in spans)
    end = min(last for _, last in spans)
    longest = max(last - first for first, last in spans)
    share = max(0.0, end - start) / longest if longest > 0 else 1.0
    return Overlap(start, end, share)


def settle_window(t0: float, evidence: list[HostEvidence]) -> Overlap | None:
    """For a step without load: from T0 to the end of the job."""
    ends = [h.ended["t"] - (h.before.seconds if h.before else 0.0) for h in evidence if h.ended]
    return Overlap(t0, max(ends), 1.0) if ends else None


def host_record(host: HostEvidence) -> dict[str, Any]:
    """One host as stored in step.json."""
    span = host.span()
    return {
        "role": host.role,
        "offset_seconds": host.before.seconds if host.before else None,
        "offset_bound_seconds": host.before.bound_seconds if host.before else None,
        "round_trip_seconds": host.before.round_trip_seconds if host.before else None,
        "drift_seconds": (
            drift_seconds(host.before, host.after) if host.before and host.after else None
        ),
        "release_confirmed_seconds_before_t0": host.confirmed_seconds_before_t0,
        "start_error_seconds": host.start_error_seconds,
        "first_event": span[0] if span else None,
        "last_event": span[1] if span else None,
        "ended": host.ended,
    }


def taints_of(
    step: Step, evidence: list[HostEvidence], overlap: Overlap | None, policy: Policy
) -> list[tuple[str, str]]:
    """Every reason not to trust the step, as (kind, text)."""
    taints = []
    loads = [host for host in evidence if host.job.load is not None]
    for host in loads:
        taints += _start_taints(host, policy)
        taints += _count_taints(host)
    for host in evidence:
        taints += _end_taints(host)
    if loads and (overlap is None or overlap.share < policy.minimum_overlap):
        share = f"{overlap.share:.0%} of the longest stream" if overlap else "no common window"
        taints.append(
            (
                "overlap",
                f"all streams ran together for {share}, {policy.minimum_overlap:.0%} wanted",
            )
        )
    taints += _sla_taints(step, loads)
    return taints


def _start_taints(host: HostEvidence, policy: Policy) -> list[tuple[str, str]]:
    limit = policy.start_error_limit_seconds
    taints = []
    error = host.start_error_seconds
    if error is None:
        taints.append(("start_error", f"{host.name}: no first event, its start is not proved"))
    elif abs(error) > limit:
        taints.append(
            (
                "start_error",
                f"{host.name}: started {error * 1e3:.1f} ms from T0, limit {limit * 1e3:g} ms",
            )
        )
    confirmed = host.confirmed_seconds_before_t0
    if confirmed is not None and confirmed < 0:
        taints.append(
            ("start_error", f"{host.name}: its release came {-confirmed * 1e3:.0f} ms after T0")
        )
    if host.before is None or host.before.bound_seconds > limit:
        bound = f"{host.before.bound_seconds * 1e3:.1f} ms" if host.before else "not measured"
        taints.append(("clock", f"{host.name}: the bound of the clock's offset is {bound}"))
    elif host.after and drift_seconds(host.before, host.after) > limit:
        drift = drift_seconds(host.before, host.after)
        taints.append(
            ("clock", f"{host.name}: its clock moved by {drift * 1e3:.1f} ms in the step")
        )
    return taints


def _count_taints(host: HostEvidence) -> list[tuple[str, str]]:
    taints = []
    errors: dict[str, int] = {}
    for stream in host.streams:
        for kind, count in stream["errors"].items():
            errors[kind] = errors.get(kind, 0) + int(count)
    found = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items()) if count)
    if found:
        taints.append(("errors", f"{host.name}: {found}"))
    ended = host.ended
    if ended is None or ended["reason"] != "completed":
        return taints
    counted = sum(stream["operations"] for stream in host.streams)
    said = ended.get("sysbench_events")
    if said != counted:
        words = "gave no count" if said is None else f"counted {said} events"
        taints.append(
            ("cross_check", f"{host.name}: sysbench {words}, the telemetry {counted} operations")
        )
    span = host.span()
    busy = ended.get("load_cpu_seconds")
    if span and busy is not None and span[1] - span[0] >= 1.0:
        share = busy / ((span[1] - span[0]) * host.cpus)
        if share > CLIENT_CPU_LIMIT:
            taints.append(
                ("client_cpu", f"{host.name}: the load itself used {share:.0%} of the host's CPUs")
            )
    return taints


def _end_taints(host: HostEvidence) -> list[tuple[str, str]]:
    taints = []
    if host.ended is None:
        taints.append(("partial", f"{host.name}: its record of the step has no end"))
    elif host.ended["reason"] == "deadline":
        taints.append(("outlived", f"{host.name}: stopped at its deadline"))
    elif host.ended["class"] != "ok":
        text = host.ended.get("message") or host.ended["reason"]
        taints.append(("partial", f"{host.name}: {text}"))
    throttled = sum(r.get("throttled") or 0 for r in host.records if r["kind"] == journal.HOST)
    if throttled:
        taints.append(("throttled", f"{host.name}: {throttled} thermal throttling events"))
    return taints


def _sla_taints(step: Step, loads: list[HostEvidence]) -> list[tuple[str, str]]:
    if step.sla is None:
        return []
    ends = [
        (stream, stream["last_event"] - host.released_at)
        for host in loads
        for stream in host.streams
        if stream["stream"] == step.sla.stream
        and stream["last_event"] is not None
        and host.released_at is not None
    ]
    if not ends:
        return []
    # From T0 to the last of the stream on any host, each on its own clock; as in the tables.
    seconds = max(elapsed for _, elapsed in ends)
    rows = sum(stream["rows"] for stream, _ in ends)
    ratio = rows / seconds / step.sla.rate_per_second if seconds > 0 else 0.0
    if ratio >= step.sla.minimum_ratio:
        return []
    text = f"{step.sla.stream}: {ratio:.1%} of {step.sla.rate_per_second:g} rows/s"
    return [("sla", f"{text}, {step.sla.minimum_ratio:.0%} wanted")]
