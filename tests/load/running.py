"""Runs a load as the supervisor does: prepare, start, ready, release, end."""

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mariadb_server import DATABASE, PASSWORD, USER, Server
from waiting import wait_for

from fleetmark_agent import histogram, shm, sysbench
from fleetmark_agent.job import Connection, Load, Stream

END_SECONDS = 60.0


def connection_to(server: Server) -> Connection:
    """How a load reaches the server: by its socket."""
    return Connection("localhost", server.port, USER, DATABASE, server.socket)


def insert_benchmark(server: Server, streams: list[Stream], **options: Any) -> Load:
    """A load of the Insert Benchmark; keywords of Load are taken out of the options."""
    known = {
        name: options.pop(name)
        for name in ("pacing", "on_error", "duration_seconds")
        if name in options
    }
    common = {"first_client": 1, "clients": streams[0].threads, "rows_per_commit": 50, "seed": 1}
    return Load("insert_benchmark", connection_to(server), streams, {**common, **options}, **known)


@dataclass
class Totals:
    """What a stream did, its threads added."""

    operations: int = 0
    rows: int = 0
    statements: int = 0
    retries: int = 0
    reconnects: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    user: list[float] = field(default_factory=lambda: [0.0] * shm.USER_WORDS)
    first_event: float = 0.0
    last_event: float = 0.0
    service: histogram.Sparse = field(default_factory=dict)
    response: histogram.Sparse = field(default_factory=dict)


class Running:
    """A started load. `finish` gives its outcome; `stream` what a stream has done so far."""

    def __init__(self, load: Load, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.prepared = sysbench.prepare(load, str(directory), PASSWORD)
        self.telemetry = shm.SharedFile(self.prepared.shm_path)
        with open(self.prepared.log_path, "wb") as log:
            self.process = subprocess.Popen(self.prepared.argv, stdout=log, stderr=log)
        self.release_time = 0.0

    def states(self) -> list[int]:
        return [self.telemetry.state(thread) for thread in range(self.prepared.threads)]

    def wait_ready(self) -> "Running":
        def ready() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(self.log())
            return all(state == shm.STATE_READY for state in self.states())

        wait_for(ready, "ready threads", 30)
        return self

    def release(self, ahead_seconds: float = 0.1) -> "Running":
        self.release_time = time.time() + ahead_seconds
        self.telemetry.release(self.release_time)
        return self

    def log(self) -> str:
        return Path(self.prepared.log_path).read_text()

    def finish(self, seconds: float = END_SECONDS) -> sysbench.Outcome:
        try:
            code = self.process.wait(timeout=seconds)
        finally:
            self.kill()
        return sysbench.classify(code, self.log(), self.states())

    def kill(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, 9)
            self.process.wait()

    def threads(self, name: str) -> list[shm.Slot]:
        threads = dict(self.prepared.stream_threads)[name]
        return [self.telemetry.slot(thread) for thread in threads]

    def stream(self, name: str) -> Totals:
        slots = self.threads(name)

        def total(word: int) -> int:
            return int(sum(slot.words[word] for slot in slots))

        firsts = [s.words[shm.S_FIRST_EVENT_TIME] for s in slots]
        return Totals(
            operations=total(shm.S_OPERATIONS),
            rows=total(shm.S_ROWS),
            statements=total(shm.S_STATEMENTS),
            retries=total(shm.S_RETRIES),
            reconnects=total(shm.S_RECONNECTS),
            errors={kind: total(word) for kind, word in shm.ERROR_WORDS.items()},
            user=[sum(s.words[shm.S_USER + n] for s in slots) for n in range(shm.USER_WORDS)],
            first_event=min((t for t in firsts if t), default=0.0),
            last_event=max(s.words[shm.S_LAST_EVENT_TIME] for s in slots),
            service=histogram.merge(s.service for s in slots),
            response=histogram.merge(s.response for s in slots),
        )
