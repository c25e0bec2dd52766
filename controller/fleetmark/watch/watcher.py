"""A run directory that is being filled -> snapshots, reading only what is new."""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from fleetmark.errors import ResultError
from fleetmark.ledger import trial_of
from fleetmark.store import RunDirectory, read_versioned
from fleetmark.tables.planned import Planned, read_plan
from fleetmark.watch.tail import Tail
from fleetmark.watch.targets import TargetFollower
from fleetmark_exporters.snapshot import RunSnapshot

ENDED_STATES = ("complete", "partial", "interrupted", "failed")
_PROBLEMS = 20


class RunWatcher:
    """Follows one run, finished or running, that another thread or process writes.

    `clock` gives the controller's wall clock in seconds. Safe to call from several threads.
    """

    def __init__(self, directory: RunDirectory, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._lock = threading.Lock()
        self._ledger = Tail(directory.ledger)
        self._next_seq = 0
        self._planned: Planned | None = None
        self._targets: dict[str, TargetFollower] = {}
        self._last_event: float | None = None
        self._ended: float | None = None
        self._host_failures: deque[str] = deque(maxlen=_PROBLEMS)
        self._problems: deque[str] = deque(maxlen=_PROBLEMS)

    def poll(self) -> RunSnapshot:
        """Read what is new and say how the run stands.

        Raises ResultError when run.json or plan.json is damaged or of an unknown version.
        """
        with self._lock:
            run = read_versioned(self._directory.run_json)
            if self._planned is None and self._directory.plan_json.exists():
                self._planned = read_plan(self._directory.plan_json)
                self._targets = {
                    name: TargetFollower(self._directory, self._planned, name)
                    for name in self._planned.load_hosts
                }
            if self._planned is not None:
                self._read_ledger(self._planned)
            now = self._clock()
            for target in self._targets.values():
                target.poll(now)
            return self._snapshot(run, now)

    def _read_ledger(self, planned: Planned) -> None:
        for line in self._ledger.lines():
            try:
                event = json.loads(line)
                if event["seq"] < self._next_seq:
                    continue
                self._next_seq = event["seq"] + 1
                self._last_event = event["t"]
                self._take_in(event, planned)
            except ResultError as error:
                self._problems.append(str(error))
            except (ValueError, KeyError, TypeError) as error:
                self._problems.append(f"{self._ledger.path}: {error!r} in {line[:80]!r}")

    def _take_in(self, event: Mapping[str, Any], planned: Planned) -> None:
        kind = event["event"]
        trial, attempt = trial_of(str(event.get("trial") or ""))
        if kind == "host_failed":
            self._host_failures.append(f"{event['host']}: {event['text']}")
        elif trial in planned.trials:
            self._targets[planned.trials[trial].target].take_in(
                planned.trials[trial], attempt, event
            )
        elif kind in ("interrupted", "run_ended"):
            self._ended = event["t"]
            for target in self._targets.values():
                target.run_ended(event["t"], str(event.get("state", kind)))

    def _snapshot(self, run: Mapping[str, Any], now: float) -> RunSnapshot:
        targets = self._targets.values()
        heard = [step.last_news for target in targets for step in target.steps]
        if self._last_event is not None:
            heard.append(self._last_event)
        going = run["state"] not in ENDED_STATES
        remaining = [target.remaining_seconds(now) for target in targets]
        damage = [text for target in targets for step in target.steps for text in step.damage]
        return RunSnapshot(
            run=self._directory.run_id,
            experiment=str(run["experiment"]),
            version=str(run["fleetmark"]),
            state=str(run["state"]),
            started=_seconds(run.get("started")),
            ended=None if going else (_seconds(run.get("ended")) or self._ended),
            expected_end=now + max(remaining) if going and remaining else None,
            last_news=max(heard, default=None),
            targets=tuple(target.snapshot(now) for target in targets),
            host_failures=tuple(self._host_failures),
            problems=(*self._problems, *damage),
        )


def _seconds(text: str | None) -> float | None:
    return datetime.fromisoformat(text).timestamp() if text else None
