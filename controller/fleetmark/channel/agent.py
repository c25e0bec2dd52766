"""Call the agent on a host: one verb, one JSON answer."""

import json
from dataclasses import dataclass
from typing import Any

from fleetmark.channel.protocol import Channel, Completed, ConnectionLost, Conversation
from fleetmark.errors import FleetmarkError, HostError, InfrastructureError, WorkloadError
from fleetmark.inventory import Host

_REPEATABLE = frozenset({"claim", "stop", "status", "facts", "dbms-check", "clean"})
"""Verbs that may be asked again when the connection was lost before the answer came."""

_CLASSES: dict[str, type[FleetmarkError]] = {
    "host": HostError,
    "workload": WorkloadError,
    "usage": InfrastructureError,
}


@dataclass(frozen=True)
class Answer:
    """What a verb printed, and how long it took to come, in seconds."""

    value: dict[str, Any]
    seconds: float


def agent_argv(host: Host, *arguments: str) -> list[str]:
    """The command line of the agent on a host."""
    return [host.python, host.agent, "--base", host.base_dir, *arguments]


def agent(
    channel: Channel, host: Host, *arguments: str, timeout_seconds: float = 60.0
) -> dict[str, Any]:
    """Call a verb and return its answer.

    Raises HostError or WorkloadError as the agent says, HostError when the agent is missing or
    answers with anything but JSON.
    """
    return timed_agent(channel, host, *arguments, timeout_seconds=timeout_seconds).value


def timed_agent(
    channel: Channel, host: Host, *arguments: str, timeout_seconds: float = 60.0
) -> Answer:
    """As `agent`, with the time that the answer took."""
    argv = agent_argv(host, *arguments)
    try:
        done = channel.run(argv, timeout_seconds=timeout_seconds)
    except ConnectionLost:
        if arguments[0] not in _REPEATABLE:
            raise
        done = channel.run(argv, timeout_seconds=timeout_seconds)
    return Answer(_answer(done, host, arguments[0]), done.seconds)


def clock_conversation(channel: Channel, host: Host) -> Conversation:
    """Start the agent's clock."""
    return channel.converse(agent_argv(host, "clock"))


def _answer(done: Completed, host: Host, verb: str) -> dict[str, Any]:
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise _no_answer(done, host, verb)
    error = document.get("error")
    if error is None and done.returncode == 0:
        return document
    if not isinstance(error, dict):
        raise _no_answer(done, host, verb)
    raise _CLASSES.get(str(error.get("kind")), HostError)(
        str(error.get("message", f"{verb} failed")),
        host=host.name,
        evidence=str(error.get("evidence") or ""),
        next_step=str(error.get("next_step") or ""),
    )


def _no_answer(done: Completed, host: Host, verb: str) -> HostError:
    words = (done.stderr or done.stdout).decode(errors="replace").strip()[-600:]
    if "can't open file" in words or "No such file" in words:
        return HostError(
            f"the agent is not there ({host.agent})",
            host=host.name,
            evidence=words,
            next_step="deploy it: fleetmark provision",
        )
    return HostError(
        f"the agent's {verb} ended with {done.returncode} and no answer",
        host=host.name,
        evidence=words or "it printed nothing",
        next_step="deploy the agent again: fleetmark provision",
    )
