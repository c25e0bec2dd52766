"""The errors that a user can meet, one class a kind, one exit code a class.

FleetmarkError
├── ConfigError          2   experiment, inventory or command line at fault
├── InfrastructureError  3   network, SSH, Ansible, the controller's own machine
│   └── HostError        3   one host at fault: unreachable, wrong state, busy
├── WorkloadError        4   the load or the DBMS under it failed
├── ResultError          5   stored results damaged or incomplete
└── Interrupted        130   stopped by the user

Exit code 1 is no error: it says that a result is negative (a verdict failed, an SLA missed).
A message says what failed; `host`, `evidence` and `next_step` say where, how we know and what
to do. Foreign exceptions become ours in the one module that uses their library.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class FleetmarkError(Exception):
    """Base of all errors shown to the user without a traceback."""

    exit_code = 3

    def __init__(
        self, message: str, *, host: str = "", evidence: str = "", next_step: str = ""
    ) -> None:
        super().__init__(message)
        self.message = message
        self.host = host
        self.evidence = evidence
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.host}: {self.message}" if self.host else self.message


class ConfigError(FleetmarkError):
    """The experiment, the inventory or the command line is at fault."""

    exit_code = 2


class InfrastructureError(FleetmarkError):
    """Network, SSH, Ansible or the controller's own machine is at fault."""

    exit_code = 3


class HostError(InfrastructureError):
    """One host is at fault: it does not answer, is busy, or is not as it must be."""


class WorkloadError(FleetmarkError):
    """The load, or the DBMS under it, failed."""

    exit_code = 4


class ResultError(FleetmarkError):
    """Stored results are damaged or incomplete."""

    exit_code = 5


class Interrupted(FleetmarkError):
    """The user stopped the work."""

    exit_code = 130


@contextmanager
def host_context(host: str) -> Iterator[None]:
    """Name the host on any of our errors that passes through without one."""
    try:
        yield
    except FleetmarkError as error:
        if not error.host:
            error.host = host
        raise
