"""One attempt of a trial: contract, instance, steps, and never a half-started run left behind."""

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fleetmark import contract, ledger, store
from fleetmark.conduct import instance
from fleetmark.conduct.context import RunContext, Taint, TrialContext
from fleetmark.conduct.jobs import step_jobs
from fleetmark.conduct.links import HostLink, on_all
from fleetmark.conduct.render import render
from fleetmark.conduct.step import StepOutcome, run_step
from fleetmark.errors import FleetmarkError, Interrupted
from fleetmark.plan import Trial


@dataclass
class Course:
    """How a trial goes, filled in on the way; becomes trial.json."""

    started: str
    state: str = "failed"
    reason: str = ""
    instance: dict[str, Any] | None = None
    stop: dict[str, Any] | None = None
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    taints: list[Taint] = field(default_factory=list)
    errors: list[FleetmarkError] = field(default_factory=list)


@dataclass(frozen=True)
class TrialOutcome:
    """How an attempt ended: ok, partial or failed, and why."""

    trial: str
    directory: str
    state: str
    reason: str
    errors: list[FleetmarkError]


def run_trial(run: RunContext, trial: Trial, attempt: int) -> TrialOutcome:
    """Run one attempt and store trial.json; raises nothing of ours, the outcome says it."""
    course = Course(started=_now())
    directory = ledger.directory_name(trial.id, attempt)
    run.ledger.append("trial_started", trial=directory, attempt=attempt)
    target = run.plan.target(trial.target)
    try:
        rendered = render(run.plan.config(trial.config), run.facts[target.db])
        context = TrialContext(
            run, trial, target, attempt, directory, rendered, secrets.token_urlsafe(24)
        )
    except FleetmarkError as error:
        course.errors.append(error)
        course.reason = error.message
    else:
        _run(context, course)
        _end(context, course)
        _write(context, course)
    run.ledger.append("trial_ended", trial=directory, state=course.state, reason=course.reason)
    return TrialOutcome(trial.id, directory, course.state, course.reason, course.errors)


def _run(trial: TrialContext, course: Course) -> None:
    try:
        _check_contract(trial, course, "before")
        course.instance = instance.start(trial)
        for mismatch in course.instance["mismatches"]:
            asked, effective = mismatch["asked"], mismatch["effective"]
            text = f"{mismatch['name']}: asked for {asked}, in effect is {effective}"
            _taint(trial, course, Taint("", "variable", text))
        course.state, course.reason = _run_steps(trial, course, course.instance)
    except Interrupted as error:
        course.state, course.reason = "partial", error.message
    except FleetmarkError as error:
        course.state, course.reason = "failed", str(error)
        course.errors.append(error)


def _run_steps(trial: TrialContext, course: Course, started: dict[str, Any]) -> tuple[str, str]:
    """Steps in order; what comes after a step that is not whole would measure other data."""
    state, reason = "ok", ""
    for index in range(len(trial.trial.steps)):
        if trial.run.stop.is_set():
            raise Interrupted("the run was stopped")
        planned = step_jobs(trial, index, started)
        outcome = run_step(trial, planned)
        course.taints += outcome.taints
        course.errors += outcome.errors.values()
        if outcome.state != "ok":
            state, reason = outcome.state, _reason(planned.directory, outcome)
            if not _may_go_on(trial, outcome):
                return state, reason
    return state, reason


def _reason(step: str, outcome: StepOutcome) -> str:
    causes = "; ".join(str(error) for error in outcome.errors.values())
    return f"{step}: {causes or 'stopped before its end'}"


def _may_go_on(trial: TrialContext, outcome: StepOutcome) -> bool:
    """Without a load host that was not ready, when the policy says so and the rest is whole."""
    return (
        outcome.state == "partial"
        and trial.run.policy.not_ready == "continue"
        and bool(outcome.errors)
        and trial.db.name not in outcome.errors
    )


def _end(trial: TrialContext, course: Course) -> None:
    """Stop the instance and look at the hosts again, whatever happened before."""
    try:
        if course.instance is not None:
            course.stop = instance.stop(trial)
    except FleetmarkError as error:
        _fall_short(course, f"the instance was not stopped: {error}", error)
    try:
        if course.instance is not None and course.stop is not None:
            instance.collect(trial)
            if not course.stop.get("clean", False):
                _taint(trial, course, Taint("", "partial", "the instance did not stop cleanly"))
    except FleetmarkError as error:
        _fall_short(course, f"the instance's files were not gathered: {error}", error)
    if course.facts:
        try:
            _check_contract(trial, course, "after")
        except FleetmarkError as error:
            _fall_short(course, f"the contract was not checked afterwards: {error}", error)


def _fall_short(course: Course, reason: str, error: FleetmarkError) -> None:
    if course.state == "ok":
        course.state = "partial"
    course.reason = "; ".join(filter(None, (course.reason, reason)))
    course.errors.append(error)


def _check_contract(trial: TrialContext, course: Course, when: str) -> None:
    """Facts of every host of the trial against its contract, stored as evidence."""
    links = [trial.db, *trial.loads]
    gathered = on_all(links, read_facts)
    facts = gathered.raise_first()
    for link in links:
        declared = trial.run.plan.contracts[link.name]
        deviations = contract.check(declared, facts[link.name])
        if when == "after":
            found = [d.item for d in deviations]
            drifted = contract.changed(course.facts[link.name], facts[link.name])
            deviations += [d for d in drifted if d.item not in found]
        store.write_json(
            trial.run.run.host(link.name) / f"contract-{trial.directory}-{when}.json",
            {
                "version": 1,
                "deviations": [vars(d) for d in deviations],
                "checked": contract.checked_items(declared),
            },
        )
        for d in deviations:
            text = f"{link.name}, {when}: {d.item} should be {d.expected}, is {d.observed}"
            _taint(trial, course, Taint("", "contract", text))
    if when == "before":
        course.facts = facts


def read_facts(link: HostLink) -> dict[str, Any]:
    """What a host is, its data directory included."""
    return link.agent("facts", "--data-dir", link.host.data_dir)


def _taint(trial: TrialContext, course: Course, taint: Taint) -> None:
    course.taints.append(taint)
    trial.run.ledger.append("taint", trial=trial.directory, **taint.record())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _write(trial: TrialContext, course: Course) -> None:
    started = course.instance
    planned = trial.trial
    store.write_json(
        trial.run.run.trial(trial.directory) / "trial.json",
        {
            "version": 1,
            "id": planned.id,
            "target": planned.target,
            "build": planned.build,
            "config": planned.config,
            "workload": planned.workload,
            "repeat": planned.repeat,
            "db": trial.target.db,
            "load": trial.target.load,
            "attempt": trial.attempt,
            "state": course.state,
            "reason": course.reason,
            "started": course.started,
            "ended": _now(),
            "instance": (
                {k: v for k, v in started.items() if k not in ("variables", "build")}
                if started
                else None
            ),
            "build_facts": started.get("build") if started else None,
            "rendered_config": trial.rendered.text,
            "stop": course.stop,
            "taints": [taint.record() for taint in course.taints],
        },
    )
