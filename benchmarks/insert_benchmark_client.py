"""Client CPU of an inserted row: the Insert Benchmark's l.i0 through the load frame against a
plain Python client on PyMySQL that does the same.

Both insert rows of the same distributions, 100 in one text statement, each statement a
transaction, over the same socket, in turn, into an empty table. The Python client's CPU is
taken over its loop alone; the start-up of sysbench is measured and taken off.
"""

import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / part) for part in ("", "load")]

from mariadb_server import Server  # noqa: E402
from running import Running, insert_benchmark  # noqa: E402

from fleetmark_agent.job import Stream  # noqa: E402

ROWS = 100_000
ROWS_PER_COMMIT = 100
ROUNDS = 6
TARGET = 0.5
BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def framed_cpu_seconds(server: Server, directory: Path, rows: int) -> float:
    """CPU of one sysbench process that creates the table and inserts `rows` rows."""
    load = insert_benchmark(
        server,
        [Stream("insert", 1, "insert")],
        phase="l.i0",
        rows_per_client=rows,
        rows_per_commit=ROWS_PER_COMMIT,
        create_table=True,
    )
    running = Running(load, directory / "job").wait_ready().release()
    _, status, usage = os.wait4(running.process.pid, 0)
    running.process.returncode = os.waitstatus_to_exitcode(status)
    if running.process.returncode or running.stream("insert").rows != rows:
        raise RuntimeError(running.log())
    running.telemetry.close()
    shutil.rmtree(directory / "job")
    return usage.ru_utime + usage.ru_stime


def python_cpu_seconds(server: Server, rows: int) -> float:
    """CPU of inserting `rows` rows from this process, the connecting not counted."""
    with server.connect() as connection:
        cursor = connection.cursor()
        mixed = "".join(random.choices(BASE64, k=4 * 1024 * 1024))
        start = time.process_time()
        for _ in range(rows // ROWS_PER_COMMIT):
            cursor.execute(python_statement(mixed))
        return time.process_time() - start


def python_statement(mixed: str) -> str:
    """One statement as a careful Python programmer would write it."""
    draw = random.random
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    values = []
    for _ in range(ROWS_PER_COMMIT):
        length = 10 + int(draw() * 11)
        tail = int(length * 0.75 * 0.5)
        at = int(draw() * (len(mixed) - tail))
        data = "a" * (length - tail) + mixed[at : at + tail]
        values.append(
            f"('{now}',{int(draw() * 1000)},{int(draw() * 100000)},{int(draw() * 10000)}"
            f",{int(draw() * 500):.2f},'{data}')"
        )
    return (
        "INSERT INTO pi1 (dateandtime, cashregisterid, customerid, productid, price, data) VALUES "
        + ",".join(values)
    )


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="fm-bench-") as name:
        server = Server(Path(name)).create()
        try:
            measure(server, Path(name))
        finally:
            server.stop()


def measure(server: Server, directory: Path) -> None:
    """Interleaved rounds; the order within a round alternates."""

    def framed(rows: int) -> float:
        server.query("DROP TABLE IF EXISTS pi1")
        return framed_cpu_seconds(server, directory, rows)

    start_up = statistics.median(framed(ROWS_PER_COMMIT) for _ in range(3))
    costs: dict[str, list[float]] = {"frame": [], "PyMySQL": []}
    for turn in range(ROUNDS):
        for which in ("frame", "PyMySQL") if turn % 2 else ("PyMySQL", "frame"):
            if which == "frame":
                seconds = framed(ROWS) - start_up
            else:
                server.query("TRUNCATE TABLE pi1")
                seconds = python_cpu_seconds(server, ROWS)
            costs[which].append(seconds / ROWS * 1e6)
    for which, values in costs.items():
        print(
            f"{which}: {statistics.median(values):.2f} us of client CPU per row"
            f" ({min(values):.2f} to {max(values):.2f}, {ROUNDS} runs of {ROWS} rows)"
        )
    pairs = zip(costs["frame"], costs["PyMySQL"], strict=True)
    ratio = statistics.median(frame_us / python_us for frame_us, python_us in pairs)
    print(f"insert_benchmark_client ratio {ratio:.3f} (target at most {TARGET})")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error}: {error.stderr!r}")
