"""How far a host's clock is from the controller's: offset, bound, drift. Pure.

One exchange has four times: sent and received by the controller's clock, received and sent by
the host's. As in NTP (RFC 5905, section 8): offset = ((t1 - t0) + (t2 - t3)) / 2, and the true
offset lies within half the round trip of it, however unequal the two ways are. Of several
exchanges the one with the smallest round trip has the smallest bound, so it alone counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

EXCHANGES = 20


@dataclass(frozen=True)
class Exchange:
    """Four times in seconds since the epoch, two by each clock."""

    controller_sent: float
    host_received: float
    host_sent: float
    controller_received: float

    @property
    def round_trip_seconds(self) -> float:
        """Time on the way, both ways, the host's own time taken out; never below zero."""
        away = self.controller_received - self.controller_sent
        return max(0.0, away - (self.host_sent - self.host_received))

    @property
    def offset_seconds(self) -> float:
        """Host clock minus controller clock."""
        there = self.host_received - self.controller_sent
        back = self.host_sent - self.controller_received
        return (there + back) / 2.0


@dataclass(frozen=True)
class Offset:
    """Host clock minus controller clock, and how wrong that can be, in seconds."""

    seconds: float
    bound_seconds: float
    round_trip_seconds: float
    at: float
    """Controller's clock when it was measured."""

    def to_host(self, controller_time: float) -> float:
        """A time on the controller's clock, as the host's clock shows it."""
        return controller_time + self.seconds

    def to_controller(self, host_time: float) -> float:
        """A time on the host's clock, as the controller's clock shows it."""
        return host_time - self.seconds


def parse_answer(answer: str) -> tuple[float, float]:
    """The agent's answer `<t_received> <t_sent>`. Raises ValueError."""
    received, sent = answer.split()
    return float(received), float(sent)


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """The offset from the exchange with the smallest round trip. Raises ValueError for none."""
    best = min(exchanges, key=lambda exchange: exchange.round_trip_seconds)
    return Offset(
        seconds=best.offset_seconds,
        bound_seconds=best.round_trip_seconds / 2.0,
        round_trip_seconds=best.round_trip_seconds,
        at=best.controller_received,
    )


def drift_seconds(before: Offset, after: Offset) -> float:
    """How far the two clocks certainly moved apart between two measurements.

    The change of the offset less what the bounds of both leave open; 0 when the bounds explain
    the whole change.
    """
    change = abs(after.seconds - before.seconds)
    return max(0.0, change - before.bound_seconds - after.bound_seconds)
