"""The hosts of a run as the conductor holds them: a channel and a running clock each."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fleetmark import clock
from fleetmark.channel import Channel, Conversation, clock_conversation, timed_agent
from fleetmark.errors import FleetmarkError, HostError, host_context
from fleetmark.inventory import Host

T = TypeVar("T")


class HostLink:
    """One host: call its agent, measure its clock, put files there."""

    def __init__(self, host: Host, channel: Channel) -> None:
        self.host = host
        self.channel = channel
        self.answer_seconds = 0.0
        """How long the last call of a quick verb took; the lead of a release follows it."""
        self._clock: Conversation | None = None
        self._clock_lock = threading.Lock()

    @property
    def name(self) -> str:
        """The host's name in the inventory."""
        return self.host.name

    def agent(self, *arguments: str, timeout_seconds: float = 60.0) -> dict[str, Any]:
        """Call a verb of the agent (docs/formats.md)."""
        answer = timed_agent(self.channel, self.host, *arguments, timeout_seconds=timeout_seconds)
        if arguments[0] in ("claim", "release", "status"):
            self.answer_seconds = answer.seconds
        return answer.value

    def measure_clock(self) -> clock.Offset:
        """The offset of the host's clock from about 20 exchanges."""
        with self._clock_lock:
            try:
                return self._exchange()
            except HostError:
                # The program went with a dropped connection: start it again, once.
                self._end_clock()
                return self._exchange()

    def _exchange(self) -> clock.Offset:
        if self._clock is None:
            self._clock = clock_conversation(self.channel, self.host)
            self._clock.ask("0")  # the first answer waits for the program to start
        exchanges = []
        for _ in range(clock.EXCHANGES):
            sent = time.time()
            answer = self._clock.ask("0")
            received = time.time()
            try:
                host_received, host_sent = clock.parse_answer(answer)
            except ValueError:
                raise HostError(
                    "the agent's clock gave no times", host=self.name, evidence=answer[:200]
                ) from None
            exchanges.append(clock.Exchange(sent, host_received, host_sent, received))
        return clock.offset_of(exchanges)

    def _end_clock(self) -> None:
        if self._clock is not None:
            conversation, self._clock = self._clock, None
            conversation.close()

    def close(self) -> None:
        """End the clock program; the channel belongs to the caller."""
        with self._clock_lock:
            self._end_clock()


@dataclass(frozen=True)
class Gathered(Generic[T]):
    """What a call to several hosts at once came to."""

    values: dict[str, T]
    errors: dict[str, FleetmarkError]

    def raise_first(self) -> dict[str, T]:
        """The values, or the first error in host order."""
        for error in self.errors.values():
            raise error
        return self.values


def on_all(links: Iterable[HostLink], action: Callable[[HostLink], T]) -> "Gathered[T]":
    """Do something on several hosts at once; one bad host does not stop the others."""
    chosen = list(links)
    values: dict[str, T] = {}
    errors: dict[str, FleetmarkError] = {}

    def guarded(link: HostLink) -> T:
        with host_context(link.name):
            return action(link)

    with ThreadPoolExecutor(max_workers=max(1, len(chosen))) as pool:
        futures = {link.name: pool.submit(guarded, link) for link in chosen}
        for name, future in futures.items():
            try:
                values[name] = future.result()
            except FleetmarkError as error:
                errors[name] = error
    return Gathered(values, errors)


def make_links(hosts: Mapping[str, Host], channels: Mapping[str, Channel]) -> dict[str, HostLink]:
    """A link for every host of a plan."""
    return {name: HostLink(host, channels[name]) for name, host in hosts.items()}
