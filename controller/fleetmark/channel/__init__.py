"""The way to a host: run a program, read and write files, call the agent.

Only user of fabric and paramiko. One connection a host, host keys verified. Errors of the
libraries become HostError here.
"""

from fleetmark.channel.agent import agent, clock_conversation, timed_agent
from fleetmark.channel.local import LocalChannel
from fleetmark.channel.protocol import Channel, Completed, Conversation
from fleetmark.channel.ssh import SshChannel
from fleetmark.inventory import Host

__all__ = [
    "Channel",
    "Completed",
    "Conversation",
    "agent",
    "clock_conversation",
    "open_channel",
    "timed_agent",
]


def open_channel(host: Host) -> Channel:
    """Connect to a host. Raises HostError that says why it cannot be reached."""
    if host.connection == "local":
        return LocalChannel(host)
    channel = SshChannel(host)
    channel.connect()
    return channel
