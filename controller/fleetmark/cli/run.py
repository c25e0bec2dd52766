"""The verbs that conduct: run, stop, resume, gather."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fleetmark import channel, conduct, ledger, store
from fleetmark import plan as plans
from fleetmark.cli import deploy, disks, prepare
from fleetmark.cli.interrupts import Interrupts, interruptible
from fleetmark.cli.options import RESULTS, ResultsOption, RunArgument
from fleetmark.cli.progress import Work, show_while
from fleetmark.conduct import Conduct, RunOutcome
from fleetmark.errors import FleetmarkError, Interrupted
from fleetmark.experiment import Metrics
from fleetmark.experiment import load as load_experiment
from fleetmark.provision import HostProgress
from fleetmark.store import RunDirectory
from fleetmark.watch import serve_during_run

_SLA_MISSED = 1

NoProvisionOption = Annotated[
    bool, typer.Option("--no-provision", help="use the hosts as they are, without Ansible")
]


@dataclass(frozen=True)
class Session:
    """One call of a verb: where it prints, and how it is stopped."""

    console: Console
    interrupts: Interrupts
    as_json: bool

    def say(self, text: str) -> None:
        """A line for a person; not among the JSON."""
        self.console.print(text, markup=False, soft_wrap=True)


def run(
    context: typer.Context,
    experiment: prepare.ExperimentArgument,
    inventory: prepare.InventoryOption = "",
    results: ResultsOption = RESULTS,
    profile: prepare.ProfileOption = "",
    no_provision: NoProvisionOption = False,
    as_json: prepare.JsonOption = False,
) -> int:
    """Run an experiment: provision, load, measure, gather, report.

    Ctrl-C once stops in order, twice leaves at once; both say how to come back. The exit code
    is 1 when a background rate was missed (SLA).

    Example: fleetmark run experiments/demo.yaml -i inventories/my-hosts.yml
    """
    prepared = prepare.prepare(experiment, prepare.inventory_of(context, inventory), profile)
    with interruptible() as interrupts:
        session = Session(Console(stderr=as_json, highlight=False), interrupts, as_json)
        with prepare.fleet_up(prepared, session.say) as ready:
            interrupts.check()
            directory = _begin(ready, results)
            session.say(f"run {directory.run_id}: {directory.path}")
            interrupts.way_back = _way_back(directory, ready.inventory)
            if not no_provision:
                _provision(session, ready, directory)
            what = Conduct(ready.plan, ready.loaded.experiment.policy, directory)
            return _execute(session, what, ready.loaded.experiment.metrics)


def _begin(ready: prepare.Prepared, results: Path) -> RunDirectory:
    directory = store.create(results)
    store.write_atomic(directory.experiment_yaml, ready.loaded.text.encode())
    store.write_json(directory.plan_json, plans.to_json(ready.plan))
    conduct.begin(directory, ready.plan.experiment, sys.argv)
    return directory


def _way_back(directory: RunDirectory, inventory: Path | None) -> str:
    where = directory.path
    lab = ""
    if inventory is not None and prepare.EMBEDDED in inventory.parts:
        lab = f"; or away with all of it: fleetmark lab down {prepare.EMBEDDED}"
    return (
        f"Hosts may still work for run {directory.run_id}; end it: fleetmark stop {where};"
        f" fetch its files: fleetmark gather {where}; go on: fleetmark resume {where}{lab}"
    )


def _provision(session: Session, ready: prepare.Prepared, directory: RunDirectory) -> None:
    conduct.set_state(directory, "provisioning")
    session.say(f"provisioning {len(ready.plan.hosts)} hosts")

    def show(progress: HostProgress) -> None:
        if line := deploy.line(progress):
            session.say(line)

    assert ready.inventory is not None  # fleet_up has made it
    what = deploy.Deployment(ready.plan, ready.inventory, directory.provision("run"))
    try:
        for disk in deploy.look_at_disks(what, session.interrupts.stop):
            session.say(disks.line(disk))
        result = deploy.deploy(what, show, session.interrupts.stop)
        book = ledger.Ledger(directory.ledger)
        for name, host in result.hosts.items():
            book.append("provisioned", host=name, status="ok" if host.ready else "failed")
        book.close()
        result.require_all()
    except FleetmarkError as error:
        state = "interrupted" if isinstance(error, Interrupted) else "failed"
        conduct.set_state(directory, state, [str(error)])
        raise


def _execute(session: Session, what: Conduct, metrics: Metrics) -> int:
    """Conduct, report, print; returns the exit code."""
    with serve_during_run(what.run, metrics.listen, metrics.linger_seconds) as serving:
        session.say(serving.warning or f"metrics: {serving.url}")
        outcome = _conduct(session, what)
        reports = _report(session, what.run)
        _print_outcome(session, what.run, outcome, reports)
        if outcome.state == "interrupted":
            raise Interrupted(
                f"run {what.run.run_id} was stopped; what was measured is in {what.run.path}",
                evidence=_left_behind(outcome),
                next_step=f"go on with it: fleetmark resume {what.run.path}",
            )
    missed = any(
        event["event"] == "taint" and event["kind"] == "sla"
        for event in ledger.read(what.run.ledger)
    )
    return outcome.exit_code or (_SLA_MISSED if missed else 0)


def _conduct(session: Session, what: Conduct) -> RunOutcome:
    opened = channel.open_channels(what.plan.hosts.values())
    try:
        if opened.errors:
            error = conduct.combined(list(opened.errors.values()))
            conduct.set_state(what.run, "failed", [str(error)])
            raise error
        work = Work(lambda: conduct.conduct(what, opened.channels, session.interrupts.stop))
        return show_while(work, what.run, session.console)
    finally:
        opened.close()


def _report(session: Session, directory: RunDirectory) -> list[Path]:
    """Tables and report. Whatever goes wrong here, the run itself is stored already."""
    from fleetmark import report  # noqa: PLC0415 (slow to import, and used at the end)
    from fleetmark.tables.build import build  # noqa: PLC0415 (as above)

    session.say("building tables and report")
    try:
        build(directory)
        return report.write(directory)
    except Exception as error:
        session.say(f"the report could not be made: {type(error).__name__}: {error}")
        session.say(f"the results are whole; try again: fleetmark report {directory.path}")
        return []


def _print_outcome(
    session: Session, directory: RunDirectory, outcome: RunOutcome, reports: list[Path]
) -> None:
    if session.as_json:
        typer.echo(json.dumps(_outcome_json(directory, outcome, reports), indent=1))
        return
    done = sum(state == "ok" for state in outcome.trials.values())
    session.say(
        f"run {directory.run_id} {outcome.state}: {done} of {len(outcome.trials)} trials ok"
    )
    for error in outcome.errors:
        session.say(f"  {error}")
        for line in error.evidence.strip().splitlines()[-8:]:
            session.say(f"    | {line}")
    if outcome.left_behind:
        session.say(_left_behind(outcome))
        session.say(f"come back to them: fleetmark stop {directory.path}, then")
        session.say(f"  fleetmark gather {directory.path}")
    for path in reports:
        session.say(str(path))


def _left_behind(outcome: RunOutcome) -> str:
    return "\n".join(f"left behind: {host}: {e.message}" for host, e in outcome.left_behind.items())


def _outcome_json(
    directory: RunDirectory, outcome: RunOutcome, reports: list[Path]
) -> dict[str, Any]:
    return {
        "run": directory.run_id,
        "directory": str(directory.path),
        "state": outcome.state,
        "trials": outcome.trials,
        "errors": [str(error) for error in outcome.errors],
        "left_behind": {host: str(error) for host, error in outcome.left_behind.items()},
        "reports": [str(path) for path in reports],
    }


def resume(
    run: RunArgument = "latest",
    results: ResultsOption = RESULTS,
    as_json: prepare.JsonOption = False,
) -> int:
    """Go on with a run that was stopped or cut off: run again each trial that is not ok.

    A trial that had begun gets a new attempt in a directory of its own; nothing is overwritten.

    Example: fleetmark resume latest
    """
    directory = store.find(results, run)
    what = conduct.replan(directory)
    metrics = load_experiment(directory.experiment_yaml).experiment.metrics
    with interruptible() as interrupts:
        interrupts.way_back = _way_back(directory, None)
        session = Session(Console(stderr=as_json, highlight=False), interrupts, as_json)
        session.say(f"going on with run {directory.run_id}")
        return _execute(session, what, metrics)


def stop(run: RunArgument = "latest", results: ResultsOption = RESULTS) -> int:
    """End everything of a run on its hosts and free them; files stay there for `gather`.

    Example: fleetmark stop latest
    """
    directory = store.find(results, run)
    what = conduct.replan(directory)
    opened = channel.open_channels(what.plan.hosts.values())
    try:
        done = conduct.stop_run(what, opened.channels)
    finally:
        opened.close()
    for host, steps in done.values.items():
        typer.echo(f"{host}: {', '.join(steps) + ' stopped' if steps else 'nothing was running'}")
    return report_errors({**opened.errors, **done.errors})


def gather(run: RunArgument = "latest", results: ResultsOption = RESULTS) -> int:
    """Fetch what a run has left on its hosts, checked by size and checksum.

    Example: fleetmark gather latest
    """
    directory = store.find(results, run)
    what = conduct.replan(directory)
    opened = channel.open_channels(what.plan.hosts.values())
    try:
        copied, errors = conduct.gather_run(what, opened.channels)
    finally:
        opened.close()
    for host, directories in copied.items():
        typer.echo(f"{host}: {', '.join(directories) or 'nothing that was not here'}")
    return report_errors({**opened.errors, **errors})


def report_errors(errors: dict[str, FleetmarkError]) -> int:
    """Say what went wrong on which host; the exit code of the first."""
    for error in errors.values():
        typer.echo(str(error), err=True)
        if error.next_step:
            typer.echo(f"  next: {error.next_step}", err=True)
    return next((error.exit_code for error in errors.values()), 0)
