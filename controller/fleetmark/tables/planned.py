"""plan.json -> what was planned, for all who read a run; needs no table."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetmark.errors import ResultError
from fleetmark.ledger import directory_name
from fleetmark.store import read_versioned
from fleetmark.tables.schema import Row
from fleetmark.workloads import Sla


@dataclass(frozen=True)
class PlannedStep:
    """A step as planned. `defining` are the streams that decide when it ends.

    `planned_rows` of the first of them end it; 0 when it ends by time.
    """

    directory: str
    index: int
    name: str
    kind: str
    expected_seconds: float
    measure_stream: str
    measure: str
    sla: Sla | None
    defining: tuple[str, ...]
    load_hosts: int
    planned_rows: int

    @property
    def write_stream(self) -> str:
        """The stream whose rows are the inserts of the step."""
        return self.sla.stream if self.sla else self.measure_stream

    @property
    def row_stream(self) -> str:
        """The stream whose rows say how far the step is."""
        return self.defining[0] if self.defining else ""


@dataclass(frozen=True)
class PlannedTrial:
    """A trial as planned; `number` counts from 1 within its target.

    `attempt` is the one that is read: the plan knows of the first one alone.
    """

    id: str
    target: str
    build: str
    config: str
    workload: str
    repeat: int
    number: int
    expected_seconds: float
    db: str
    load: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    attempt: int = 1

    @property
    def directory(self) -> str:
        """The name of its directory."""
        return directory_name(self.id, self.attempt)

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

    def step(self, word: str) -> PlannedStep | None:
        """The step with that directory or name."""
        return next((s for s in self.steps if word in (s.directory, s.name)), None)


@dataclass(frozen=True)
class Planned:
    """Targets in order, their load hosts, and all trials by id, in order."""

    load_hosts: Mapping[str, tuple[str, ...]]
    trials: Mapping[str, PlannedTrial]

    def of_target(self, target: str) -> list[PlannedTrial]:
        """The trials of a target in order."""
        return [trial for trial in self.trials.values() if trial.target == target]


def read_plan(path: Path) -> Planned:
    """Read plan.json. Raises ResultError when it is missing, damaged or of another version."""
    document = read_versioned(path)
    try:
        hosts = {t["name"]: (t["db"], tuple(t["load"])) for t in document["targets"]}
        numbers = dict.fromkeys(hosts, 0)
        trials = {}
        for trial in document["trials"]:
            target = trial["target"]
            numbers[target] += 1
            trials[trial["id"]] = _trial(trial, numbers[target], *hosts[target])
    except (KeyError, TypeError) as error:
        raise ResultError(f"{path} lacks what a plan must have: {error!r}") from None
    return Planned({name: load for name, (_, load) in hosts.items()}, trials)


def _trial(data: Mapping[str, Any], number: int, db: str, load: tuple[str, ...]) -> PlannedTrial:
    return PlannedTrial(
        id=data["id"],
        target=data["target"],
        build=data["build"],
        config=data["config"],
        workload=data["workload"],
        repeat=data["repeat"],
        number=number,
        expected_seconds=data["expected_seconds"],
        db=db,
        load=load,
        steps=tuple(_step(step, index) for index, step in enumerate(data["steps"], 1)),
    )


def _step(data: Mapping[str, Any], index: int) -> PlannedStep:
    streams = [stream for load in data["loads"] for stream in load["streams"]]
    options = [load["options"] for load in data["loads"]]
    by_count = bool(options) and all(o.get("rows_per_client") for o in options)
    return PlannedStep(
        directory=data["directory"],
        index=index,
        name=data["name"],
        kind=data["kind"],
        expected_seconds=data["expected_seconds"],
        measure_stream=data["measure_stream"],
        measure=data["measure"],
        sla=Sla(**data["sla"]) if data["sla"] else None,
        defining=tuple(dict.fromkeys(s["name"] for s in streams if s["defining"])),
        load_hosts=len(data["loads"]),
        planned_rows=sum(o["rows_per_client"] * o["clients"] for o in options) if by_count else 0,
    )
