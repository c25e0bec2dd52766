"""A whole run: claim, look, run targets side by side, gather, give the hosts back."""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from fleetmark import ledger, store
from fleetmark.channel import Channel
from fleetmark.conduct import preflight, record, release, stopping
from fleetmark.conduct.context import Patience, RunContext
from fleetmark.conduct.links import Gathered, HostLink, make_links, on_all
from fleetmark.conduct.trial import TrialOutcome, run_trial
from fleetmark.errors import FleetmarkError, HostError, Interrupted
from fleetmark.experiment import Policy
from fleetmark.plan import Plan, Trial


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended: complete, partial, interrupted or failed.

    `trials` holds the last state of every trial by id; `errors` what went wrong, first thing
    first; `left_behind` the hosts that could not be freed or gathered.
    """

    state: str
    trials: dict[str, str]
    errors: list[FleetmarkError] = field(default_factory=list)
    left_behind: dict[str, FleetmarkError] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 when complete, else the code of the first error."""
        if self.state == "interrupted":
            return Interrupted.exit_code
        if self.state == "complete":
            return 0
        return next((error.exit_code for error in self.errors), HostError.exit_code)


@dataclass(frozen=True)
class Conduct:
    """What to conduct: the plan, the policy of its experiment, and where the results go."""

    plan: Plan
    policy: Policy
    run: store.RunDirectory
    patience: Patience = field(default_factory=Patience)


def conduct(what: Conduct, channels: Mapping[str, Channel], stop: threading.Event) -> RunOutcome:
    """Run every trial that the ledger does not show as ok.

    Of a fresh run that is all of them; of one that was cut off it is a resume, and a trial that
    had begun gets a new attempt in a directory of its own. Raises the combined problems when
    the hosts are not fit, after freeing them; everything later is in the outcome. `stop` ends
    the run in order.
    """
    states = ledger.trial_states(ledger.read(what.run.ledger))
    work = [
        (trial, states[trial.id].attempts + 1 if trial.id in states else 1)
        for trial in what.plan.trials
        if trial.id not in states or states[trial.id].state != "ok"
    ]
    run = RunContext(
        plan=what.plan,
        policy=what.policy,
        run=what.run,
        links=make_links(what.plan.hosts, channels),
        ledger=ledger.Ledger(what.run.ledger),
        stop=stop,
        patience=what.patience,
    )
    try:
        with stopping.obeying(what.run, stop):
            return _conduct(run, work, again=bool(states))
    finally:
        for link in run.links.values():
            link.close()
        run.ledger.close()


def _conduct(run: RunContext, work: list[tuple[Trial, int]], again: bool) -> RunOutcome:
    record.set_state(run.run, "running")
    run.ledger.append("run_started", trials=len(work))
    try:
        _prepare(run, again)
    except FleetmarkError as error:
        _finish(run, "interrupted" if isinstance(error, Interrupted) else "failed", [str(error)])
        raise
    outcomes = _run_targets(run, work)
    ends = release.let_go(run.links.values(), run.run)
    left = {end.host: end.error for end in ends if end.error is not None}
    return _outcome(run, outcomes, left)


def _prepare(run: RunContext, again: bool) -> None:
    """Claim and look at all hosts; on any problem free them again and raise all of them.

    When the run was cut off before, what it left on the hosts is ended and gathered first.
    """
    pythons: Gathered[None] = on_all(run.links.values(), preflight.check_python)
    fit = [link for name, link in run.links.items() if name not in pythons.errors]
    problems: list[FleetmarkError] = list(pythons.errors.values())
    claimed: list[HostLink] = []
    try:
        if again:
            problems += release.take_up(fit, run.run).errors.values()
        taken = release.claim(fit, run.run.run_id)
        claimed = [run.links[name] for name in taken.values]
        problems += taken.errors.values()
        # A host that another run holds shows that run's port and files: no news.
        if not problems:
            problems += preflight.inspect(run).problems
        if run.stop.is_set():
            raise Interrupted("stopped before anything was started")
        if problems:
            raise preflight.combined(problems)
    except FleetmarkError:
        on_all(claimed, lambda link: link.agent("clean", "--run", run.run.run_id))
        raise
    _store_facts(run)


def _store_facts(run: RunContext) -> None:
    for name, facts in run.facts.items():
        path = run.run.host(name) / "facts.json"
        number = 2
        while path.exists():
            path = path.with_name(f"facts.a{number}.json")
            number += 1
        store.write_json(path, facts)
        run.ledger.append("facts", host=name)


def _run_targets(run: RunContext, work: list[tuple[Trial, int]]) -> list[TrialOutcome]:
    """Targets do not wait for one another; the trials of one target do."""
    with ThreadPoolExecutor(max_workers=len(run.plan.targets)) as pool:
        futures = [
            pool.submit(_run_target, run, [w for w in work if w[0].target == target.name])
            for target in run.plan.targets
        ]
        return [outcome for future in futures for outcome in future.result()]


def _run_target(run: RunContext, work: list[tuple[Trial, int]]) -> list[TrialOutcome]:
    outcomes = []
    for trial, attempt in work:
        if run.stop.is_set():
            break
        outcome = run_trial(run, trial, attempt)
        outcomes.append(outcome)
        if outcome.state != "ok" and run.policy.failed_trial == "stop":
            break
    return outcomes


def _outcome(
    run: RunContext, outcomes: list[TrialOutcome], left: dict[str, FleetmarkError]
) -> RunOutcome:
    states = ledger.trial_states(ledger.read(run.run.ledger))
    trials = {t.id: states[t.id].state if t.id in states else "" for t in run.plan.trials}
    reasons = [f"{o.directory}: {o.state}: {o.reason}" for o in outcomes if o.state != "ok"]
    reasons += [f"{trial}: not run" for trial, state in trials.items() if not state]
    reasons += [f"{host}: {error.message}" for host, error in left.items()]
    if run.stop.is_set():
        run.ledger.append("interrupted")
        state = "interrupted"
    elif all(s == "ok" for s in trials.values()) and not left:
        state = "complete"
    else:
        state = "partial" if any(s in ("ok", "partial") for s in trials.values()) else "failed"
    _finish(run, state, reasons)
    errors = [error for outcome in outcomes for error in outcome.errors] + list(left.values())
    return RunOutcome(state, trials, errors, left)


def _finish(run: RunContext, state: str, reasons: list[str]) -> None:
    run.ledger.append("run_ended", state=state)
    record.set_state(run.run, state, reasons)
    store.write_sums(run.run)
