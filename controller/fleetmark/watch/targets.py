"""One target as the ledger tells it: trials, steps to show, taints."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fleetmark.ledger import directory_name
from fleetmark.store import RunDirectory, read_json
from fleetmark.tables.planned import Planned, PlannedStep, PlannedTrial
from fleetmark.watch.journals import JournalFollower
from fleetmark.watch.steps import StepFollower
from fleetmark_agent.journal import JOURNAL_NAME
from fleetmark_exporters.snapshot import TargetSnapshot, TrialSnapshot

KEEP_SECONDS = 30.0
"""An ended step stays visible at least so long, so that a scrape each 15 s sees even a step
that takes a second; the last step of a target stays until the next one begins."""
SILENT_SECONDS = 15.0
TRIAL_STATES = ("planned", "running", "ok", "partial", "failed")


class TargetFollower:
    """Follows a target through the events of the ledger."""

    def __init__(self, directory: RunDirectory, planned: Planned, name: str) -> None:
        self.name = name
        self.steps: list[StepFollower] = []
        self._directory = directory
        self._load_hosts = planned.load_hosts[name]
        self._armed: list[str] = []
        self._trials = planned.of_target(name)
        self._states = {trial.id: "planned" for trial in self._trials}
        self._shown: tuple[PlannedTrial, int] | None = None
        self._activity = "waiting"
        self._taints: Counter[str] = Counter()

    def take_in(self, trial: PlannedTrial, attempt: int, event: Mapping[str, Any]) -> None:
        """One event that names a trial of this target. Unknown events are left alone."""
        word = trial.step(str(event.get("step", "")))
        kind = event["event"]
        if kind == "trial_started":
            self._states[trial.id] = "running"
            self._activity = f"trial {trial.number}: starting the database"
            self._armed = []
        elif kind == "dbms_started":
            self._activity = f"trial {trial.number}: database started"
        elif kind == "step_armed" and word:
            self._armed.append(event["host"])
            self._activity = f"arming {word.name}"
        elif kind == "step_released" and word:
            self._release(trial, attempt, word, event["t0"])
            self._activity = f"running {word.name}"
        elif kind == "step_ended" and word:
            self._end_step(trial, attempt, word, event["t"])
            self._activity = f"{word.name} ended"
        elif kind == "trial_ended":
            self._states[trial.id] = event["state"]
            self._cut_off(event["t"])
            self._activity = f"trial {trial.number} ended: {event['state']}"
        elif kind == "taint":
            self._taints[event["kind"]] += 1

    def _release(self, trial: PlannedTrial, attempt: int, step: PlannedStep, t0: float) -> None:
        shown = (trial, attempt)
        if shown != self._shown:
            # Series carry no trial label: two trials must never be shown side by side.
            self.steps = []
            self._shown = shown
        self.steps = [s for s in self.steps if s.planned.name != step.name]
        directory = directory_name(trial.id, attempt)
        journals = [
            JournalFollower(
                self._directory.step(directory, step.directory, host) / JOURNAL_NAME, host
            )
            for host in self._hosts_of(step)
        ]
        self.steps.append(StepFollower(step, t0, journals))
        self._armed = []

    def _hosts_of(self, step: PlannedStep) -> list[str]:
        """The armed hosts whose journals tell how far the step is.

        Not every load host has a part in every step, and the database host only has one of
        its own where there is no load.
        """
        if not step.measure_stream:
            return self._armed
        return [host for host in self._load_hosts if host in self._armed]

    def _end_step(self, trial: PlannedTrial, attempt: int, step: PlannedStep, at: float) -> None:
        directory = self._directory.trial(directory_name(trial.id, attempt)) / step.directory
        completed = read_json(directory / "step.json")["state"] == "ok"
        for follower in self.steps:
            if follower.planned == step:
                follower.end(at, completed)

    def _cut_off(self, at: float) -> None:
        for step in self.steps:
            step.end(at, completed=False)

    def run_ended(self, at: float, activity: str) -> None:
        """Nothing more will come."""
        self._cut_off(at)
        self._activity = activity

    def poll(self, now: float) -> None:
        """Take in what is new in the journals of the steps that are shown."""
        kept = [
            step
            for step in self.steps[:-1]
            if step.ended_at is None or now - step.ended_at < KEEP_SECONDS
        ]
        self.steps = kept + self.steps[-1:]
        for step in self.steps:
            step.poll()

    def snapshot(self, now: float) -> TargetSnapshot:
        """The target at this moment."""
        counts = Counter(self._states.values())
        last = self.steps[-1] if self.steps else None
        silent = last.silent_seconds(now) if last else {}
        return TargetSnapshot(
            name=self.name,
            trial=self._trial_snapshot(),
            activity=self._activity,
            steps=tuple(step.snapshot(now) for step in self.steps),
            rates=last.rates() if last else (),
            trials={state: counts[state] for state in TRIAL_STATES},
            taints=dict(self._taints),
            silent_seconds={h: s for h, s in silent.items() if s > SILENT_SECONDS},
        )

    def _trial_snapshot(self) -> TrialSnapshot | None:
        if self._shown is None:
            return None
        trial, attempt = self._shown
        return TrialSnapshot(
            id=trial.id,
            build=trial.build,
            config=trial.config,
            workload=trial.workload,
            repeat=trial.repeat,
            number=trial.number,
            attempt=attempt,
        )

    def remaining_seconds(self, now: float) -> float:
        """Estimate of what is left: the plan's times, the running step at its own pace."""
        left = 0.0
        for trial in self._trials:
            if self._states[trial.id] == "planned":
                left += trial.expected_seconds
            elif self._states[trial.id] == "running":
                left += self._rest_of(trial, now)
        return left

    def _rest_of(self, trial: PlannedTrial, now: float) -> float:
        if self._shown is None or self._shown[0] != trial or not self.steps:
            return trial.expected_seconds
        current = self.steps[-1]
        later = trial.steps[trial.steps.index(current.planned) + 1 :]
        overhead = trial.expected_seconds - sum(step.expected_seconds for step in trial.steps)
        rest = sum(step.expected_seconds for step in later)
        rest += overhead * len(later) / len(trial.steps)
        return rest + max(0.0, current.snapshot(now).expected_end - now)
