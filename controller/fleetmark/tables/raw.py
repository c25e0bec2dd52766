"""The files of a run directory -> what was planned and what each host delivered."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetmark import store
from fleetmark.errors import ResultError
from fleetmark.tables.journals import HostJournal, parse
from fleetmark.tables.schema import Row
from fleetmark_agent import journal

_KNOWN_VERSIONS = (1,)


@dataclass(frozen=True)
class PlannedSla:
    """The rate in rows a second that a stream must reach."""

    stream: str
    rate_per_second: float
    minimum_ratio: float


@dataclass(frozen=True)
class PlannedStep:
    """A step as planned. `defining` are the streams that decide when it ends."""

    directory: str
    index: int
    name: str
    kind: str
    measure_stream: str
    measure: str
    sla: PlannedSla | None
    defining: tuple[str, ...]
    load_hosts: int

    @property
    def write_stream(self) -> str:
        """The stream whose rows are the inserts of the step."""
        return self.sla.stream if self.sla else self.measure_stream


@dataclass(frozen=True)
class PlannedTrial:
    """A trial as planned."""

    id: str
    target: str
    build: str
    config: str
    workload: str
    repeat: int
    db: str
    load: tuple[str, ...]
    steps: tuple[PlannedStep, ...]

    @property
    def key(self) -> Row:
        """The columns that name this trial in every table."""
        return {
            "trial": self.id,
            "target": self.target,
            "build": self.build,
            "config": self.config,
            "workload": self.workload,
            "repeat": self.repeat,
        }

    def step_key(self, step: PlannedStep) -> Row:
        """The columns that name one of its steps in every table."""
        return {
            **self.key,
            "step": step.directory,
            "step_index": step.index,
            "name": step.name,
        }


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


def versioned(path: Path) -> Any:
    """Read a JSON document and refuse a version that this program does not know."""
    document = store.read_json(path)
    if not isinstance(document, dict) or document.get("version") not in _KNOWN_VERSIONS:
        found = document.get("version") if isinstance(document, dict) else None
        raise ResultError(
            f"{path} has format version {found!r}, this program reads {_KNOWN_VERSIONS[-1]}",
            next_step="read it with the version of fleetmark that wrote it (see run.json)",
        )
    return document


def planned_trials(run: store.RunDirectory) -> list[PlannedTrial]:
    """All trials of plan.json, in order. Raises ResultError when the plan cannot be read."""
    document = versioned(run.plan_json)
    try:
        targets = {t["name"]: (t["db"], tuple(t["load"])) for t in document["targets"]}
        return [_trial(trial, targets) for trial in document["trials"]]
    except (KeyError, TypeError) as error:
        raise ResultError(f"{run.plan_json}: {error} is missing or malformed") from None


def _trial(data: dict[str, Any], targets: dict[str, tuple[str, tuple[str, ...]]]) -> PlannedTrial:
    db, load = targets[data["target"]]
    return PlannedTrial(
        id=data["id"],
        target=data["target"],
        build=data["build"],
        config=data["config"],
        workload=data["workload"],
        repeat=data["repeat"],
        db=db,
        load=load,
        steps=tuple(_step(step, index) for index, step in enumerate(data["steps"], 1)),
    )


def _step(data: dict[str, Any], index: int) -> PlannedStep:
    sla = data.get("sla")
    streams = [stream for load in data["loads"] for stream in load["streams"]]
    return PlannedStep(
        directory=data["directory"],
        index=index,
        name=data["name"],
        kind=data["kind"],
        measure_stream=data["measure_stream"],
        measure=data["measure"],
        sla=PlannedSla(sla["stream"], sla["rate_per_second"], sla["minimum_ratio"])
        if sla
        else None,
        defining=tuple(dict.fromkeys(s["name"] for s in streams if s["defining"])),
        load_hosts=len(data["loads"]),
    )


def trial_document(run: store.RunDirectory, trial: str) -> dict[str, Any] | None:
    """trial.json, or null when the trial has not begun."""
    path = run.trial(trial) / "trial.json"
    return versioned(path) if path.is_file() else None


def facts(run: store.RunDirectory, host: str) -> dict[str, Any] | None:
    """facts.json of a host, or null when it was never asked."""
    path = run.host(host) / "facts.json"
    return versioned(path) if path.is_file() else None


def raw_steps(run: store.RunDirectory, trial: PlannedTrial) -> Iterator[RawStep]:
    """All planned steps of a trial, one at a time (journals can be large).

    A step that never began has neither document nor hosts.
    """
    device = (((facts(run, trial.db) or {}).get("data")) or {}).get("device") or ""
    for step in trial.steps:
        directory = run.trial(trial.id) / step.directory
        if not directory.is_dir():
            yield RawStep(trial, step, None, (), device)
            continue
        path = directory / "step.json"
        document = versioned(path) if path.is_file() else None
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
    path = run.step(trial.id, step.directory, host) / journal.JOURNAL_NAME
    if not path.is_file():
        return None
    offset = float((proofs.get(host) or {}).get("offset_seconds") or 0.0)
    return parse(path.read_bytes(), str(path), offset)


def ledger(run: store.RunDirectory) -> list[dict[str, Any]]:
    """The whole records of the run's ledger. Raises ResultError naming a damaged line."""
    if not run.ledger.is_file():
        return []
    records = []
    for number, line in enumerate(journal.split_lines(run.ledger.read_bytes())[0], 1):
        try:
            record = json.loads(line)
            record["event"]
        except (ValueError, KeyError, TypeError):
            raise ResultError(f"{run.ledger}:{number}: not a record of the ledger") from None
        records.append(record)
    return records
