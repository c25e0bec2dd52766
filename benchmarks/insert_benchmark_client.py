"""Client CPU of an inserted row: the Insert Benchmark's l.i0 through the load frame against a
plain Python client on PyMySQL that does the same.

Both insert rows of the same distributions, 100 in one text statement, each statement a
transaction, over the same socket, in turn, into an empty table. The Python client's CPU is
taken over its loop alone; the start-up of sysbench is measured and taken off.
"""

import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / part) for part in ("", "load")]

from _measured import Measured, answer, cpu_seconds, in_turn, spread  # noqa: E402
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
    cpu = cpu_seconds(running.process)
    if running.stream("insert").rows != rows:
        raise RuntimeError(running.log())
    running.telemetry.close()
    shutil.rmtree(directory / "job")
    return cpu


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


def main() -> int:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="fm-bench-") as name:
        server = Server(Path(name)).create()
        try:
            return answer(measure(server, Path(name)))
        finally:
            server.stop()


def measure(server: Server, directory: Path) -> Measured:
    """CPU of one row through the frame, against the Python client."""

    def framed(rows: int) -> float:
        server.query("DROP TABLE IF EXISTS pi1")
        return framed_cpu_seconds(server, directory, rows)

    def python() -> float:
        server.query("TRUNCATE TABLE pi1")
        return python_cpu_seconds(server, ROWS)

    start_up = statistics.median(framed(ROWS_PER_COMMIT) for _ in range(3))
    costs = in_turn(
        ROUNDS,
        {
            "PyMySQL": lambda: python() / ROWS * 1e6,
            "frame": lambda: (framed(ROWS) - start_up) / ROWS * 1e6,
        },
    )
    pairs = zip(costs["frame"], costs["PyMySQL"], strict=True)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    print(f"client CPU of a row: PyMySQL {spread(costs['PyMySQL'])}")
    print(f"client CPU of a row: frame {spread(costs['frame'])}")
    value = f"{statistics.median(costs['frame']):.2f} us"
    return Measured("insert_benchmark_client", value, ratio, TARGET)


if __name__ == "__main__":
    sys.exit(main())
