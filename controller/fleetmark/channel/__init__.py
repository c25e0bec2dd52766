"""The way to a host: run a program, read and write files, call the agent.

Only user of fabric and paramiko. One connection a host, host keys verified. Errors of the
libraries become HostError here.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fleetmark.channel.agent import agent, clock_conversation, timed_agent
from fleetmark.channel.local import LocalChannel
from fleetmark.channel.protocol import Channel, Completed, Conversation
from fleetmark.channel.ssh import SshChannel
from fleetmark.errors import FleetmarkError, host_context
from fleetmark.inventory import Host

__all__ = [
    "Channel",
    "Completed",
    "Conversation",
    "Opened",
    "agent",
    "clock_conversation",
    "open_channel",
    "open_channels",
    "timed_agent",
]


def open_channel(host: Host) -> Channel:
    """Connect to a host. Raises HostError that says why it cannot be reached."""
    if host.connection == "local":
        return LocalChannel(host)
    channel = SshChannel(host)
    channel.connect()
    return channel


@dataclass(frozen=True)
class Opened:
    """Channels to the hosts that answered, and an error for each that did not."""

    channels: dict[str, Channel]
    errors: dict[str, FleetmarkError]

    def close(self) -> None:
        """End all connections."""
        for channel in self.channels.values():
            channel.close()


def open_channels(hosts: Iterable[Host]) -> Opened:
    """Connect to several hosts at once."""
    channels: dict[str, Channel] = {}
    errors: dict[str, FleetmarkError] = {}

    def connect(host: Host) -> None:
        try:
            with host_context(host.name):
                channels[host.name] = open_channel(host)
        except FleetmarkError as error:
            errors[host.name] = error

    chosen = list(hosts)
    with ThreadPoolExecutor(max_workers=max(1, min(32, len(chosen)))) as pool:
        list(pool.map(connect, chosen))
    order = [host.name for host in chosen]
    return Opened(
        {name: channels[name] for name in order if name in channels},
        {name: errors[name] for name in order if name in errors},
    )
