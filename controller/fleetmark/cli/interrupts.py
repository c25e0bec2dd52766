"""Ctrl-C: once for an orderly stop, twice to leave at once with the way to come back."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from fleetmark.errors import Interrupted


@dataclass
class Interrupts:
    """Whether the user has asked to stop, and what to say when it was asked twice."""

    stop: threading.Event = field(default_factory=threading.Event)
    way_back: str = ""

    def check(self) -> None:
        """Raises Interrupted when the user has asked to stop."""
        if self.stop.is_set():
            raise Interrupted("stopped before the run began")

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        """The signal handler: the first signal asks, the second leaves."""
        if self.stop.is_set():
            _write(f"\nleft at once. {self.way_back}\n")
            # Threads that wait for a host would hold up an ordinary exit.
            os._exit(Interrupted.exit_code)
        self.stop.set()
        _write("\nstopping: hosts are cleaned and files gathered; Ctrl-C again leaves at once\n")


def _write(text: str) -> None:
    # A print may be going on: the handler must not enter the same buffer.
    os.write(sys.stderr.fileno(), text.encode())


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Take Ctrl-C and a polite kill while the block runs."""
    interrupts = Interrupts()
    before: dict[signal.Signals, Callable[..., object] | int | None] = {}
    for name in (signal.SIGINT, signal.SIGTERM):
        before[name] = signal.signal(name, interrupts.handle)
    try:
        yield interrupts
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
