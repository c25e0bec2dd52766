"""Show a run while it goes, from its directory; work itself is in another thread."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from rich.console import Console
from rich.live import Live

from fleetmark.store import RunDirectory
from fleetmark.watch import RunWatcher
from fleetmark.watch.screen import plain_line, screen

T = TypeVar("T")

_SCREEN_SECONDS = 0.5
_LINE_SECONDS = 10.0


class Work(threading.Thread, Generic[T]):
    """Does one thing in a thread; `result` gives its value or raises its error."""

    def __init__(self, action: Callable[[], T]) -> None:
        super().__init__(name="work")
        self._action = action
        self._value: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do it."""
        try:
            self._value.append(self._action())
        except BaseException as error:
            # Raised again in the thread that waits for the result.
            self._error = error

    def result(self) -> T:
        """The value, when the thread has ended."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._value[0]


def show_while(work: Work[T], directory: RunDirectory, console: Console) -> T:
    """Show the run until the work is done; returns or raises what the work does."""
    work.start()
    watcher = RunWatcher(directory)
    if console.is_terminal:
        _show_screen(work, watcher, console)
    else:
        _show_lines(work, watcher, console)
    return work.result()


def _show_screen(work: Work[T], watcher: RunWatcher, console: Console) -> None:
    snapshot = watcher.poll()
    with Live(screen(snapshot, time.time()), console=console, auto_refresh=False) as live:
        while work.is_alive():
            work.join(_SCREEN_SECONDS)
            snapshot = watcher.poll()
            live.update(screen(snapshot, time.time()), refresh=True)


def _show_lines(work: Work[T], watcher: RunWatcher, console: Console) -> None:
    """A line when a target begins something else, and one now and then."""
    shown: dict[str, tuple[str, float]] = {}
    while work.is_alive():
        work.join(_SCREEN_SECONDS)
        now = time.monotonic()
        for target in watcher.poll().targets:
            activity, at = shown.get(target.name, ("", now))
            if activity != target.activity or now - at >= _LINE_SECONDS:
                console.print(plain_line(target), markup=False, soft_wrap=True)
                shown[target.name] = (target.activity, now)
