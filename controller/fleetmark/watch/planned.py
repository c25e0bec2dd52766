"""What `watch` needs of plan.json."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetmark.errors import ResultError
from fleetmark.plan import PLAN_VERSION
from fleetmark.store import read_json
from fleetmark.workloads import Sla


@dataclass(frozen=True)
class PlannedStep:
    """One step. `planned_rows` of `row_stream` end it; 0 when it ends by time."""

    directory: str
    name: str
    expected_seconds: float
    measure: str
    measure_stream: str
    sla: Sla | None
    row_stream: str
    planned_rows: int


@dataclass(frozen=True)
class PlannedTrial:
    """One trial; `number` counts from 1 within its target."""

    id: str
    target: str
    build: str
    config: str
    workload: str
    repeat: int
    number: int
    expected_seconds: float
    steps: tuple[PlannedStep, ...]

    def step(self, word: str) -> PlannedStep | None:
        """The step with that directory or name."""
        return next((s for s in self.steps if word in (s.directory, s.name)), None)


@dataclass(frozen=True)
class Planned:
    """Targets in order, their load hosts, and all trials by id."""

    experiment: str
    load_hosts: Mapping[str, tuple[str, ...]]
    trials: Mapping[str, PlannedTrial]

    def of_target(self, target: str) -> list[PlannedTrial]:
        """The trials of a target in order."""
        return [trial for trial in self.trials.values() if trial.target == target]


def read_plan(path: Path) -> Planned:
    """Read plan.json. Raises ResultError when it is missing, damaged or of another version."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("version") != PLAN_VERSION:
        raise ResultError(
            f"{path} is not a plan of version {PLAN_VERSION}",
            next_step="use the version of fleetmark that made the run",
        )
    try:
        targets = {t["name"]: tuple(t["load"]) for t in data["targets"]}
        seen = dict.fromkeys(targets, 0)
        trials = {}
        for trial in data["trials"]:
            seen[trial["target"]] += 1
            trials[trial["id"]] = _trial(trial, seen[trial["target"]])
        return Planned(data["experiment"], targets, trials)
    except (KeyError, TypeError) as error:
        raise ResultError(f"{path} lacks what a plan must have: {error!r}") from None


def _trial(data: Mapping[str, Any], number: int) -> PlannedTrial:
    return PlannedTrial(
        id=data["id"],
        target=data["target"],
        build=data["build"],
        config=data["config"],
        workload=data["workload"],
        repeat=data["repeat"],
        number=number,
        expected_seconds=data["expected_seconds"],
        steps=tuple(_step(step) for step in data["steps"]),
    )


def _step(data: Mapping[str, Any]) -> PlannedStep:
    options = [load["options"] for load in data["loads"]]
    streams = data["loads"][0]["streams"] if data["loads"] else []
    by_count = bool(options) and all(o.get("rows_per_client") for o in options)
    return PlannedStep(
        directory=data["directory"],
        name=data["name"],
        expected_seconds=data["expected_seconds"],
        measure=data["measure"],
        measure_stream=data["measure_stream"],
        sla=Sla(**data["sla"]) if data["sla"] else None,
        row_stream=next((s["name"] for s in streams if s["defining"]), ""),
        planned_rows=sum(o["rows_per_client"] * o["clients"] for o in options) if by_count else 0,
    )
