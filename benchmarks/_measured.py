"""What the benchmarks share: turns, CPU of a process, and the one form in which they answer."""

import os
import statistics
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """One number, and the ratio that is to be at most `target`. `value` has its unit."""

    name: str
    value: str
    ratio: float
    target: float


def answer(*found: Measured) -> int:
    """Print a line for each; the exit code: 0, or 1 when a target is missed."""
    for m in found:
        print(f"{m.name} {m.value}, ratio {m.ratio:.3f} (target at most {m.target:g})")
    return int(any(m.ratio > m.target for m in found))


def in_turn(rounds: int, ways: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Call each way once a round, so that all see the same noise; the order alternates."""
    values: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in list(ways)[:: 1 if turn % 2 else -1]:
            values[name].append(ways[name]())
    return values


def spread(values: list[float]) -> str:
    """The median with the smallest and the largest, and how many there are."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.2f} us ({low:.2f} to {high:.2f}, {len(values)} runs)"


def cpu_seconds(process: "subprocess.Popen[bytes]") -> float:
    """Wait for a process; its user + system time. Raises RuntimeError when it failed."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime
