"""The files of a run directory -> what each host delivered of what was planned."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fleetmark import ledger, store
from fleetmark.tables.journals import HostJournal, parse
from fleetmark.tables.planned import PlannedStep, PlannedTrial, read_plan
from fleetmark_agent import journal


@dataclass(frozen=True)
class RawHost:
    """What one host delivered for one step. `journal` is null when nothing was gathered."""

    name: str
    role: str
    proof: dict[str, Any]
    journal: HostJournal | None


@dataclass(frozen=True)
class RawStep:
    """One step with all its hosts. `document` is step.json, null when the step has not ended."""

    trial: PlannedTrial
    plan: PlannedStep
    document: dict[str, Any] | None
    hosts: tuple[RawHost, ...]
    data_device: str

    @property
    def t0(self) -> float | None:
        """Release time on the controller's clock."""
        value = (self.document or {}).get("t0")
        return float(value) if value is not None else None


def planned_trials(run: store.RunDirectory) -> list[PlannedTrial]:
    """All trials of a run, in order, each as the last attempt at it that was begun.

    Raises ResultError when plan or ledger cannot be read.
    """
    begun = ledger.trial_states(ledger.read(run.ledger))
    return [
        dataclasses.replace(trial, attempt=begun[trial.id].attempts) if trial.id in begun else trial
        for trial in read_plan(run.plan_json).trials.values()
    ]


def trial_document(run: store.RunDirectory, trial: PlannedTrial) -> dict[str, Any] | None:
    """trial.json, or null when the trial has not begun."""
    path = run.trial(trial.directory) / "trial.json"
    return store.read_versioned(path) if path.is_file() else None


def facts(run: store.RunDirectory, host: str) -> dict[str, Any] | None:
    """facts.json of a host, or null when it was never asked."""
    path = run.host(host) / "facts.json"
    return store.read_versioned(path) if path.is_file() else None


def raw_steps(run: store.RunDirectory, trial: PlannedTrial) -> Iterator[RawStep]:
    """All planned steps of a trial, one at a time (journals can be large).

    A step that never began has neither document nor hosts.
    """
    device = (((facts(run, trial.db) or {}).get("data")) or {}).get("device") or ""
    for step in trial.steps:
        directory = run.trial(trial.directory) / step.directory
        if not directory.is_dir():
            yield RawStep(trial, step, None, (), device)
            continue
        path = directory / "step.json"
        document = store.read_versioned(path) if path.is_file() else None
        proofs = (document or {}).get("hosts") or {}
        hosts = tuple(
            RawHost(name, role, proofs.get(name) or {}, _journal(run, trial, step, name, proofs))
            for name, role in _roles(trial, step, proofs).items()
        )
        yield RawStep(trial, step, document, hosts, device)


def _roles(trial: PlannedTrial, step: PlannedStep, proofs: dict[str, Any]) -> dict[str, str]:
    """The hosts that have a part in a step, as planned and as step.json tells.

    A host that is both is listed once, as db.
    """
    roles = {host: str(proof.get("role") or "load") for host, proof in proofs.items()}
    roles |= dict.fromkeys(trial.load[: step.load_hosts], "load")
    roles[trial.db] = "db"
    return roles


def _journal(
    run: store.RunDirectory,
    trial: PlannedTrial,
    step: PlannedStep,
    host: str,
    proofs: dict[str, Any],
) -> HostJournal | None:
    path = run.step(trial.directory, step.directory, host) / journal.JOURNAL_NAME
    if not path.is_file():
        return None
    offset = float((proofs.get(host) or {}).get("offset_seconds") or 0.0)
    return parse(path.read_bytes(), str(path), offset)
