"""CPU of the agent with all samplers at 1 s, as a share of one core.

A real MariaDB and a real load at a moderate fixed rate; the shares are the supervisors' own CPU
time over the measured seconds, from their journals.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _measured import Measured, answer

from fleetmark_agent import journal
from fleetmark_agent.job import Connection, Dbms, Job, Load, Samplers, Stream, encode

LIMIT = 0.02
PASSWORD = "sampler-cost"
RUN, TRIAL = "bench", "t1"


class Host:
    """A base directory and the agent's program."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.base = top / "b"

    def call(self, *arguments: str) -> dict[str, Any]:
        """One verb."""
        command = [sys.executable, "-m", "fleetmark_agent", "--base", str(self.base), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode != 0:
            raise SystemExit(f"{arguments[0]}: {done.stdout}{done.stderr}")
        return dict(json.loads(done.stdout))

    def put(self, step: str, name: str, text: str) -> str:
        """A file of a job or an instance, its secret beside it."""
        directory = self.base / "runs" / RUN / TRIAL / step
        directory.mkdir(parents=True, exist_ok=True)
        for file, content in ((name, text), ("secret.json", json.dumps({"password": PASSWORD}))):
            (directory / file).touch(0o600)
            (directory / file).write_text(content)
        return str(directory / name)

    def records(self, step: str) -> list[dict[str, Any]]:
        """The journal of a job."""
        path = self.base / "runs" / RUN / TRIAL / step / "journal.jsonl"
        return journal.read(path.read_bytes())


def load(port: int, threads: int, rate: float) -> Load:
    """Inserts in key order at a fixed rate: many threads, little work, so that both fit here."""
    options = {
        "first_client": 1, "clients": threads, "all_clients": threads, "one_table": False,
        "engine": "innodb", "data_length_min": 10, "data_length_max": 20, "seed": 1,
        "phase": "l.i0", "rows_per_client": 100_000_000, "rows_per_commit": 10,
        "create_table": True,
    }  # fmt: skip
    connection = Connection("127.0.0.1", port, "fleetmark", "fleetmark")
    stream = Stream("insert", threads, "insert", rate)
    return Load("insert_benchmark", connection, [stream], options)


def share(records: list[dict[str, Any]], start: float) -> float:
    """CPU of the supervisor over time, whole seconds after T0 only."""
    whole = [
        r for r in records
        if r["kind"] == "host" and r["t"] > start + 0.5 and r["interval_seconds"] > 0.9
    ]  # fmt: skip
    cost = sum(r["cost_seconds"] for r in whole)
    return float(cost / sum(r["interval_seconds"] for r in whole))


def measure(host: Host, port: int, threads: int, seconds: float) -> dict[str, float]:
    """The shares of a database host and of a load host."""
    dbms = Dbms(
        RUN, TRIAL, "mariadb", str(host.top / "d"), port, "127.0.0.1",
        "innodb_flush_log_at_trx_commit=0\nmax_connections=500\n",
    )  # fmt: skip
    instance = host.call("dbms-start", host.put("dbms", "dbms.json", encode(dbms)))
    connection = Connection("localhost", port, "fleetmark", "fleetmark", instance["socket"])
    samplers = Samplers(1.0, 1.0, connection, instance["pid_file"], instance["data_dir"])
    jobs = {
        "db": Job(RUN, TRIAL, "db", "db", samplers, 600.0),
        "load": Job(RUN, TRIAL, "load", "load", Samplers(), 600.0, load(port, threads, 1000.0)),
    }
    for step, job in jobs.items():
        host.call("arm", host.put(step, "job.json", encode(job)), "--metrics", "")
    start = time.time() + 0.7
    for step in jobs:
        host.call("release", "--run", RUN, "--trial", TRIAL, "--step", step, "--at", repr(start))
    time.sleep(seconds + 1.0)
    host.call("stop", "--run", RUN)
    return {step: share(host.records(step), start) for step in jobs}


def main() -> int:
    """Print the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=36)
    parser.add_argument("--port", type=int, default=13490)
    arguments = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="fm-cost-"))
    top.chmod(0o711)
    host = Host(top)
    try:
        shares = measure(host, arguments.port, arguments.threads, arguments.seconds)
    finally:
        host.call("clean", "--run", RUN)
        shutil.rmtree(top)
    print(f"agent and samplers at 1 s, {arguments.threads} connections; 1 is a whole core")
    return answer(
        *(
            Measured(f"sampler_cost_{step}_host", f"{part * 100:.2f} % of a core", part, LIMIT)
            for step, part in shares.items()
        )
    )


if __name__ == "__main__":
    sys.exit(main())
