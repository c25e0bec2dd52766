"""Follow the jobs of a step by gathering their journals early, a thread a host.

A host that stops answering does not hold up the others, and its job goes on without us: when it
answers again, its journal is read on from where the local copy ends.
"""

import threading
import time
from collections.abc import Mapping

from fleetmark import gather
from fleetmark.conduct.links import HostLink
from fleetmark.errors import HostError
from fleetmark_agent import journal

_SHORTEST_POLL_SECONDS = 0.2
_LONGEST_POLL_SECONDS = 1.0
_ORDINARY_SECONDS = 4.0
"""A poll now and then takes longer than its interval; that is no silence."""


class Follower(threading.Thread):
    """Copies the journal of one job until it has ended or is told to give up."""

    def __init__(self, link: HostLink, source: gather.Source) -> None:
        super().__init__(name=f"follow-{link.name}", daemon=True)
        self.link = link
        self._source = source
        self._give_up = threading.Event()
        self._heard = time.monotonic()
        self.ended = False
        self.trouble: HostError | None = None

    @property
    def silent_seconds(self) -> float:
        """For how long the host has not answered; 0 while it answers in ordinary time."""
        silent = time.monotonic() - self._heard
        return silent if silent > _ORDINARY_SECONDS and not self.ended else 0.0

    def run(self) -> None:
        """Poll more often at first: a short step should not wait for a slow poll."""
        started = self._heard = time.monotonic()
        while not self._give_up.is_set():
            self._poll()
            if self.ended:
                return
            pause = _SHORTEST_POLL_SECONDS + (time.monotonic() - started) / 20.0
            self._give_up.wait(min(_LONGEST_POLL_SECONDS, pause))

    def _poll(self) -> None:
        try:
            lines = gather.tail(self.link.channel, self._source)
        except HostError as error:
            self.trouble = error
            return
        self._heard = time.monotonic()
        if lines and journal.decode(lines[-1])["kind"] == journal.ENDED:
            self.ended = True

    def give_up(self) -> None:
        """End the thread at its next turn; one that waits for a silent host is left to it."""
        self._give_up.set()
        if self.silent_seconds == 0:
            self.join()


def wait_for_end(
    followers: Mapping[str, Follower],
    defining: list[str],
    stop: threading.Event,
    lost_seconds: float,
) -> dict[str, HostError]:
    """Wait until the defining jobs have ended; the hosts that were lost instead.

    A lost host is waited for as long as others still work, and then for `lost_seconds`. When a
    host without load (the database's) is lost for so long, the step cannot go on: it is lost.
    Returns at once when `stop` is set.
    """
    while not stop.is_set():
        silent = {name: f for name, f in followers.items() if f.silent_seconds > 0}
        working = [name for name in defining if not followers[name].ended and name not in silent]
        overdue = {name: f for name, f in silent.items() if f.silent_seconds >= lost_seconds}
        if set(overdue) - set(defining) or (not working and set(overdue) == set(silent)):
            return {name: _lost(f) for name, f in overdue.items()}
        stop.wait(0.05)
    return {}


def _lost(follower: Follower) -> HostError:
    cause = follower.trouble
    return HostError(
        f"has not answered for {follower.silent_seconds:.0f} s",
        host=follower.link.name,
        evidence=str(cause.message if cause else ""),
        next_step="its job goes on there and stops by itself; gather it when the host is back",
    )
