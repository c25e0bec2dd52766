"""Client CPU of an operation through the load frame against plain sysbench.

Both run oltp_point_select with the same options, tables and server, in turn; start-up CPU of
each is measured by runs without work and taken off. Prints the median of the ratios of
neighbouring runs, which see the same noise of the machine.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent / "tests" / part) for part in ("", "load")]

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


def _cpu_of(process: "subprocess.Popen[bytes]") -> float:
    """Wait for the process; its user + system time in seconds."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"sysbench ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


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
        cpu = _cpu_of(process)
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
    cpu = _cpu_of(running.process)
    cost = Cost(cpu, running.stream("event").operations)
    running.telemetry.close()
    shutil.rmtree(directory / "framed")
    return cost


def per_operation_us(cost: Cost, start_up_seconds: float) -> float:
    """CPU microseconds of one operation."""
    return (cost.cpu_seconds - start_up_seconds) / cost.operations * 1e6


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="fm-bench-") as name:
        directory = Path(name)
        server = Server(directory).create()
        try:
            plain(server, directory, "prepare")
            measure(server, directory)
        finally:
            server.stop()


def measure(server: Server, directory: Path) -> None:
    """Interleaved rounds; the order within a round alternates."""
    empty_plain = statistics.median(
        plain(server, directory, "run", "--time=0", f"--events={THREADS}").cpu_seconds
        for _ in range(5)
    )
    empty_framed = statistics.median(framed(server, directory, 0).cpu_seconds for _ in range(5))
    costs: dict[str, list[float]] = {"plain": [], "framed": []}
    for turn in range(ROUNDS):
        for which in ("plain", "framed") if turn % 2 else ("framed", "plain"):
            if which == "plain":
                cost = plain(server, directory, "run", f"--time={SECONDS:g}", "--events=0")
                costs[which].append(per_operation_us(cost, empty_plain))
            else:
                cost = framed(server, directory, SECONDS)
                costs[which].append(per_operation_us(cost, empty_framed))
    for which, values in costs.items():
        print(
            f"{which}: {statistics.median(values):.2f} us of client CPU per point select"
            f" ({min(values):.2f} to {max(values):.2f}, {ROUNDS} runs, {THREADS} threads)"
        )
    pairs = zip(costs["framed"], costs["plain"], strict=True)
    ratios = [framed_us / plain_us for framed_us, plain_us in pairs]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    print(f"frame_cost ratio {ratio:.3f} (target at most {TARGET}; half of the pairs lie")
    print(f"between {low:.3f} and {high:.3f})")


if __name__ == "__main__":
    main()
