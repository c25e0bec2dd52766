"""Client CPU of an operation through the load frame against plain sysbench.

Both run oltp_point_select with the same options, tables and server, in turn; start-up CPU of
each is measured by runs without work and taken off. The ratio is the median of those of
neighbouring runs, which see the same noise of the machine.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / part) for part in ("", "load")]

from _measured import Measured, answer, cpu_seconds, in_turn, spread  # noqa: E402
from mariadb_server import DATABASE, PASSWORD, USER, Server  # noqa: E402
from running import Running, connection_to  # noqa: E402

from fleetmark_agent.job import Load, Stream  # noqa: E402

THREADS = 8
ROUNDS = 16
SECONDS = 1
OPTIONS = {"tables": 2, "table_size": 10000, "rand_type": "uniform", "rand_seed": 1}
TARGET = 1.15


@dataclass(frozen=True)
class Cost:
    """CPU seconds (user + system) of one run, and how many operations it did."""

    cpu_seconds: float
    operations: int


def plain(server: Server, directory: Path, command: str, *limits: str) -> Cost:
    """One run of the stock script."""
    config = directory / "plain.cnf"
    config.write_text(
        f"mysql-socket={server.socket}\nmysql-user={USER}\nmysql-password={PASSWORD}\n"
        f"mysql-db={DATABASE}\n"
    )
    options = [f"--{name.replace('_', '-')}={value}" for name, value in OPTIONS.items()]
    log = directory / "plain.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sysbench", f"--config-file={config}", f"--threads={THREADS}", *limits, *options,
             "oltp_point_select", command],
            stdout=output, stderr=output,
        )  # fmt: skip
        cpu = cpu_seconds(process)
    events = [line for line in log.read_text().splitlines() if "total number of events" in line]
    return Cost(cpu, int(events[0].split()[-1]) if events else 0)


def framed(server: Server, directory: Path, seconds: float) -> Cost:
    """One run through the frame; 0 seconds ends it before its first operation."""
    load = Load(
        "oltp_point_select",
        connection_to(server),
        [Stream("event", THREADS, "event")],
        OPTIONS,
        duration_seconds=seconds,
    )
    running = Running(load, directory / "framed").wait_ready()
    if not seconds:
        running.telemetry.stop()
    running.release()
    cpu = cpu_seconds(running.process)
    cost = Cost(cpu, running.stream("event").operations)
    running.telemetry.close()
    shutil.rmtree(directory / "framed")
    return cost


def per_operation_us(cost: Cost, start_up_seconds: float) -> float:
    """CPU microseconds of one operation."""
    return (cost.cpu_seconds - start_up_seconds) / cost.operations * 1e6


def main() -> int:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="fm-bench-") as name:
        directory = Path(name)
        server = Server(directory).create()
        try:
            plain(server, directory, "prepare")
            return answer(measure(server, directory))
        finally:
            server.stop()


def measure(server: Server, directory: Path) -> Measured:
    """CPU of one point select through the frame, against the stock script."""
    nothing = ("--time=0", f"--events={THREADS}")
    empty = {
        "frame": statistics.median(framed(server, directory, 0).cpu_seconds for _ in range(5)),
        "plain": statistics.median(
            plain(server, directory, "run", *nothing).cpu_seconds for _ in range(5)
        ),
    }
    whole = ("run", f"--time={SECONDS:g}", "--events=0")
    costs = in_turn(
        ROUNDS,
        {
            "plain": lambda: per_operation_us(plain(server, directory, *whole), empty["plain"]),
            "frame": lambda: per_operation_us(framed(server, directory, SECONDS), empty["frame"]),
        },
    )
    ratios = [ours / theirs for ours, theirs in zip(costs["frame"], costs["plain"], strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    print(f"client CPU of a point select: plain {spread(costs['plain'])}")
    print(f"client CPU of a point select: frame {spread(costs['frame'])}")
    print(f"half of the ratios lie between {low:.3f} and {high:.3f}")
    return Measured("frame_cost", f"{statistics.median(costs['frame']):.2f} us", ratio, TARGET)


if __name__ == "__main__":
    sys.exit(main())
