"""A host for the agent's tests: a base directory, the real agent program, real jobs."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waiting import wait_for

from fleetmark_agent import journal
from fleetmark_agent.job import Connection, Dbms, Job, Load, Samplers, Stream, encode

PASSWORD = "it's-a-\\secret\""
PORTS = range(13400, 13500)
SMALL = """innodb_buffer_pool_size=64M
innodb_log_file_size=32M
innodb_flush_log_at_trx_commit=0
"""


class AgentHost:
    """One base directory. Every verb is a real call of the program."""

    def __init__(self, run: str = "run-1") -> None:
        # Below /tmp and short: a socket's path is limited, and user mysql must get through.
        self.top = Path(tempfile.mkdtemp(prefix="fm-agent-"))
        self.top.chmod(0o711)
        self.base = self.top / "b"
        self.data = self.top / "d"
        self.run = run

    def close(self) -> None:
        """End what the test left, and delete everything."""
        self.call("clean", "--run", self.run)
        shutil.rmtree(self.top)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """The agent's program, its ends in our hands."""
        return subprocess.Popen(
            [sys.executable, "-m", "fleetmark_agent", "--base", str(self.base), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
        )

    def call(self, *arguments: str, code: int | None = 0) -> dict[str, Any]:
        """One verb's answer; on `code` 3 or 4 the inside of its error."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=120)
        assert err == b"", err.decode()
        if code is not None:
            assert process.returncode == code, out.decode()
        document = json.loads(out)
        return document.get("error", document)  # type: ignore[no-any-return]

    def directory(self, step: str, trial: str = "t1") -> Path:
        """A job's directory."""
        return self.base / "runs" / self.run / trial / step

    def put(self, directory: Path, name: str, text: str, mode: int = 0o600) -> Path:
        """Write a file as the controller does."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / name
        path.touch(mode)
        path.write_text(text)
        return path

    def put_job(self, job: Job) -> Path:
        """Send a job and its secret."""
        directory = self.directory(job.step, job.trial)
        self.put(directory, "secret.json", json.dumps({"password": PASSWORD}))
        return self.put(directory, "job.json", encode(job))

    def arm(self, job: Job, code: int = 0, metrics: str = "") -> dict[str, Any]:
        """Send and arm a job."""
        return self.call("arm", str(self.put_job(job)), "--metrics", metrics, code=code)

    def release(self, job: Job, at: float | None = None) -> float:
        """Release a job, by default at once."""
        at = time.time() if at is None else at
        self.call(
            "release", "--run", job.run, "--trial", job.trial, "--step", job.step, "--at", repr(at)
        )
        return at

    def records(self, job: Job) -> list[dict[str, Any]]:
        """The job's journal so far."""
        path = self.directory(job.step, job.trial) / "journal.jsonl"
        return journal.read(path.read_bytes()) if path.exists() else []

    def of_kind(self, job: Job, kind: str) -> list[dict[str, Any]]:
        """Records of one kind."""
        return [record for record in self.records(job) if record["kind"] == kind]

    def wait_ended(self, job: Job, seconds: float = 30.0) -> dict[str, Any]:
        """Wait for the manifest, which comes after the last record; that record."""
        manifest = self.directory(job.step, job.trial) / "manifest.json"
        wait_for(manifest.exists, "end of the job", seconds)
        return self.records(job)[-1]

    def put_dbms(self, dbms: Dbms) -> Path:
        """Send an instance and its secret."""
        directory = self.directory("dbms", dbms.trial)
        self.put(directory, "secret.json", json.dumps({"password": PASSWORD}))
        return self.put(directory, "dbms.json", encode(dbms))

    def dbms(self, trial: str, port: int, config: str = "", **more: Any) -> Dbms:
        """An instance with small files, so that it starts quickly."""
        return Dbms(
            self.run, trial, "mariadb", str(self.data), port, "127.0.0.1", SMALL + config, **more
        )

    def job(self, step: str, load: Load | None = None, **more: Any) -> Job:
        """A job of trial t1."""
        options = {"samplers": Samplers(), "deadline_seconds": 60.0, **more}
        return Job(run=self.run, trial="t1", step=step, host="h1", load=load, **options)


@dataclass(frozen=True)
class RunningDbms:
    """An instance that several tests share, started by the agent."""

    host: AgentHost
    answer: dict[str, Any]

    @property
    def port(self) -> int:
        return int(self.answer["port"])

    @property
    def connection(self) -> Connection:
        return Connection("localhost", self.port, "fleetmark", "fleetmark", self.answer["socket"])


def counted(host: AgentHost, job: Job, seconds: float = 20.0) -> None:
    """Wait until the journal holds an interval with operations."""
    wait_for(lambda: any(r["operations"] for r in host.of_kind(job, "load")), "operations", seconds)


def insert_load(port: int, rows: int, *, threads: int = 2, rate: float = 0.0) -> Load:
    """The first step of the Insert Benchmark: `rows` for each thread, 100 a commit."""
    return Load(
        script="insert_benchmark",
        connection=Connection("127.0.0.1", port, "fleetmark", "fleetmark"),
        streams=[Stream("insert", threads, "insert", rate)],
        options={
            "first_client": 1,
            "clients": threads,
            "all_clients": threads,
            "one_table": False,
            "engine": "innodb",
            "data_length_min": 10,
            "data_length_max": 20,
            "seed": 1,
            "phase": "l.i0",
            "rows_per_client": rows,
            "rows_per_commit": 100,
            "create_table": True,
        },
    )


def stop_signal_of(pid: int) -> str:
    """The state letter of a process in /proc, empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(") ")[2][0]


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    return stop_signal_of(pid) not in ("", "Z", "X")


def command_lines() -> str:
    """The command lines of all processes."""
    lines = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                lines.append(Path(f"/proc/{entry}/cmdline").read_bytes().decode("utf-8", "replace"))
            except OSError:
                continue
    return "\n".join(lines)
