"""One step: put the jobs there, arm, release at one time, follow, stop, gather, prove."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fleetmark import clock, gather, store
from fleetmark.conduct import proof
from fleetmark.conduct.context import Taint, TrialContext
from fleetmark.conduct.follow import Follower, wait_for_end
from fleetmark.conduct.jobs import StepJobs
from fleetmark.conduct.links import Gathered, HostLink, on_all
from fleetmark.errors import FleetmarkError, HostError, Interrupted, ResultError, WorkloadError
from fleetmark_agent import job as jobs
from fleetmark_agent import journal

State = Literal["ok", "partial", "failed"]
_LOOSE_NAMES = ["job.json", "sysbench.log", "supervisor.log", "my.cnf", "error.log", "state.json"]
_STOP_TIMEOUT_SECONDS = 90.0
_ARM_MARGIN_SECONDS = 30.0
_MANIFEST_WAIT_SECONDS = 20.0
_MANIFEST_POLL_SECONDS = 0.05
_QUIET_SECONDS = 0.1
"""After T0, before the first look at the journals."""


@dataclass
class Course:
    """How a step goes, filled in on the way: all times of T0 on the controller's clock."""

    t0: float = 0.0
    before: dict[str, clock.Offset] = field(default_factory=dict)
    after: dict[str, clock.Offset] = field(default_factory=dict)
    confirmed: dict[str, float] = field(default_factory=dict)
    errors: dict[str, FleetmarkError] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class StepOutcome:
    """How a step ended. `errors` by host; a workload error counts more than a lost host."""

    state: State
    taints: list[Taint]
    errors: dict[str, FleetmarkError]


def run_step(trial: TrialContext, planned: StepJobs) -> StepOutcome:
    """Run a step to its end, whatever happens, and store its proof in step.json.

    Raises nothing for a host at fault: the outcome says so. Interrupted passes through after
    the hosts were stopped and their files gathered.
    """
    links = {name: trial.run.links[name] for name in planned.jobs}
    course = Course()
    interrupted = False
    try:
        _arm(trial, planned, links, course)
        _release(trial, planned, links, course)
        _observe(trial, planned, links, course)
    except Interrupted:
        interrupted = True
    except FleetmarkError as error:
        course.errors.setdefault(error.host or trial.db.name, error)
    _end(trial, planned, links, course)
    outcome = _prove(trial, planned, course, interrupted)
    if interrupted:
        raise Interrupted("the run was stopped")
    return outcome


def _source(trial: TrialContext, planned: StepJobs, link: HostLink) -> gather.Source:
    return gather.Source(
        trial.remote(link, planned.directory),
        trial.run.run.step(trial.directory, planned.directory, link.name),
    )


def _arm(
    trial: TrialContext, planned: StepJobs, links: dict[str, HostLink], course: Course
) -> None:
    """Everything that takes time happens here: connections made, statements prepared."""

    def arm(link: HostLink) -> dict[str, Any]:
        job = planned.jobs[link.name]
        path = f"{trial.remote(link, planned.directory)}/job.json"
        secret = json.dumps({"password": trial.password}).encode()
        link.channel.write(path.replace("job.json", "secret.json"), secret)
        link.channel.write(path, jobs.encode(job).encode(), 0o644)
        limit = job.arm_timeout_seconds + _ARM_MARGIN_SECONDS
        answer = link.agent("arm", path, timeout_seconds=limit)
        trial.run.ledger.append(
            "step_armed", trial=trial.directory, step=planned.directory, host=link.name
        )
        return answer

    _check_stop(trial)
    armed = on_all(links.values(), arm)
    course.errors.update(armed.errors)
    _check_stop(trial)
    go_on = trial.run.policy.not_ready == "continue" and trial.db.name in armed.values
    if armed.errors and not (go_on and set(armed.values) & set(planned.defining)):
        armed.raise_first()


def _release(
    trial: TrialContext, planned: StepJobs, links: dict[str, HostLink], course: Course
) -> None:
    """One start time for all, far enough ahead for the slowest channel, on each host's clock."""
    ready = [link for name, link in links.items() if name not in course.errors]
    course.before.update(on_all(ready, HostLink.measure_clock).raise_first())
    patience = trial.run.patience
    slowest = max(link.answer_seconds for link in ready)
    lead = max(patience.lead_seconds, patience.lead_factor * slowest)
    course.t0 = time.time() + lead

    def release(link: HostLink) -> dict[str, Any]:
        at = course.before[link.name].to_host(course.t0)
        place = ("--run", trial.run.run.run_id, "--trial", trial.directory)
        return link.agent("release", *place, "--step", planned.directory, "--at", f"{at:.6f}")

    answers: Gathered[dict[str, Any]] = on_all(ready, release)
    for name, answer in answers.values.items():
        course.confirmed[name] = float(answer["at"]) - float(answer["now"])
    answers.raise_first()
    trial.run.ledger.append(
        "step_released", trial=trial.directory, step=planned.directory, t0=course.t0
    )


def _observe(
    trial: TrialContext, planned: StepJobs, links: dict[str, HostLink], course: Course
) -> None:
    followers = {
        name: Follower(link, _source(trial, planned, link))
        for name, link in links.items()
        if name not in course.errors
    }
    # Nobody asks a host anything around T0: the answer would cost what is to be measured.
    trial.run.stop.wait(max(0.0, course.t0 + _QUIET_SECONDS - time.time()))
    _check_stop(trial)
    for follower in followers.values():
        follower.start()
    try:
        defining = [name for name in planned.defining if name in followers]
        lost = wait_for_end(followers, defining, trial.run.stop, trial.run.patience.lost_seconds)
        course.errors.update(lost)
        course.lost.update(lost)
    finally:
        for follower in followers.values():
            follower.give_up()
    _check_stop(trial)


def _end(
    trial: TrialContext, planned: StepJobs, links: dict[str, HostLink], course: Course
) -> None:
    """Stop what still runs and gather everything; a host at fault does not stop the others."""

    def end(link: HostLink) -> None:
        source = _source(trial, planned, link)
        if not _has_ended(source):
            place = ("--run", trial.run.run.run_id, "--trial", trial.directory)
            link.agent(
                "stop", *place, "--step", planned.directory, timeout_seconds=_STOP_TIMEOUT_SECONDS
            )
        if link.name in course.before:
            course.after[link.name] = link.measure_clock()
        collect(link, source, _MANIFEST_WAIT_SECONDS)

    reachable = [link for name, link in links.items() if name not in course.lost]
    for name, error in on_all(reachable, end).errors.items():
        course.errors.setdefault(name, error)


def collect(link: HostLink, source: gather.Source, wait_seconds: float = 0.0) -> None:
    """All files of a job that has ended; what there is of one that was cut off.

    The manifest is the last thing that a job writes, a moment after its journal has ended:
    it is waited for. A job that never comes to it is a HostError, after what is there was
    copied.
    """
    limit = time.monotonic() + wait_seconds
    while not gather.has_manifest(link.channel, source) and time.monotonic() < limit:
        time.sleep(_MANIFEST_POLL_SECONDS)
    try:
        gather.fetch_all(link.channel, source)
    except HostError:
        fetch_rest(link, source)
        raise


def fetch_rest(link: HostLink, source: gather.Source) -> None:
    """What there is of something that was cut off before its manifest."""
    while gather.tail(link.channel, source):
        pass
    gather.fetch_loose(link.channel, source, _LOOSE_NAMES)


def _has_ended(source: gather.Source) -> bool:
    records = _records(source.local)
    return bool(records) and records[-1]["kind"] == journal.ENDED


def _records(local: Path) -> list[dict[str, Any]]:
    path = local / journal.JOURNAL_NAME
    if not path.is_file():
        return []
    try:
        return journal.read(path.read_bytes())
    except journal.JournalError as error:
        raise ResultError(f"{path}: {error}") from None


def _check_stop(trial: TrialContext) -> None:
    if trial.run.stop.is_set():
        raise Interrupted("the run was stopped")


def _prove(
    trial: TrialContext, planned: StepJobs, course: Course, interrupted: bool
) -> StepOutcome:
    """Write step.json from what was gathered."""
    evidence = [_evidence(trial, planned, course, name) for name in planned.jobs]
    if planned.step.loads:
        overlap = proof.overlap_of(evidence)
    else:
        overlap = proof.settle_window(course.t0, evidence)
    for host in evidence:
        if error := _ended_badly(host):
            course.errors.setdefault(host.name, error)
    found = proof.taints_of(planned.step, evidence, overlap, trial.run.policy)
    found += [("partial", f"{name}: {error.message}") for name, error in course.errors.items()]
    if interrupted:
        found.append(("partial", "the run was stopped in this step"))
    taints = [Taint(planned.directory, kind, text) for kind, text in dict.fromkeys(found)]
    state = _state(evidence, course, interrupted)
    store.write_json(
        trial.run.run.trial(trial.directory) / planned.directory / "step.json",
        {
            "version": 1,
            "step": planned.directory,
            "name": planned.step.name,
            "state": state,
            "t0": course.t0,
            "hosts": {host.name: proof.host_record(host) for host in evidence},
            "overlap": overlap.record() if overlap else None,
            "taints": [{"kind": t.kind, "text": t.text} for t in taints],
        },
    )
    _write_down(trial, planned, taints, course)
    return StepOutcome(state, taints, course.errors)


def _write_down(
    trial: TrialContext, planned: StepJobs, taints: list[Taint], course: Course
) -> None:
    ledger = trial.run.ledger
    for taint in taints:
        ledger.append("taint", trial=trial.directory, **taint.record())
    for name, error in course.errors.items():
        kind = "workload" if isinstance(error, WorkloadError) else "host"
        ledger.append("host_failed", **{"host": name, "class": kind, "text": error.message})
    ledger.append(
        "step_ended", trial=trial.directory, step=planned.directory, hosts=list(planned.jobs)
    )


def _evidence(
    trial: TrialContext, planned: StepJobs, course: Course, name: str
) -> proof.HostEvidence:
    local = trial.run.run.step(trial.directory, planned.directory, name)
    return proof.HostEvidence(
        name=name,
        role="db" if name == trial.db.name else "load",
        job=planned.jobs[name],
        records=_records(local),
        cpus=int(((trial.run.facts.get(name) or {}).get("cpu") or {}).get("logical") or 1),
        before=course.before.get(name),
        after=course.after.get(name),
        confirmed_seconds_before_t0=course.confirmed.get(name),
    )


def _ended_badly(host: proof.HostEvidence) -> FleetmarkError | None:
    """The error in an `ended` record. A sampler that was stopped has done what it should."""
    ended = host.ended
    if ended is None or ended["class"] == "ok":
        return None
    kind = WorkloadError if ended["class"] == "workload" else HostError
    return kind(
        str(ended.get("message") or ended["reason"]),
        host=host.name,
        evidence=f"exit code {ended.get('exit_code')}, signal {ended.get('signal')}",
        next_step="its sysbench.log and supervisor.log are in the run directory",
    )


def _state(evidence: list[proof.HostEvidence], course: Course, interrupted: bool) -> State:
    """Failed when the workload failed or nothing was measured; partial when a part is missing."""
    if any(isinstance(error, WorkloadError) for error in course.errors.values()):
        return "failed"
    measured = [host for host in evidence if host.ended]
    if not measured or not course.confirmed:
        return "failed"
    stopped_early = any(
        host.ended["reason"] in ("stopped", "deadline")
        for host in measured
        if host.job.load is not None or host.job.settle is not None
        if host.ended
    )
    return "partial" if interrupted or course.errors or stopped_early else "ok"
