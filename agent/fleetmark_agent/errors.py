"""The errors of the agent: what the controller gets as JSON, with an exit code a kind."""

from typing import Dict


class AgentError(Exception):
    """Base: a message for the user, the evidence for it, and what to do next."""

    kind = "host"
    exit_code = 3

    def __init__(self, message: str, evidence: str = "", next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.evidence = evidence
        self.next_step = next_step

    def to_json(self) -> Dict[str, Dict[str, str]]:
        """The error document of docs/formats.md."""
        return {
            "error": {
                "kind": self.kind,
                "message": self.message,
                "evidence": self.evidence,
                "next_step": self.next_step,
            }
        }


class HostError(AgentError):
    """This host is at fault: busy, full, a program is missing."""


class WorkloadError(AgentError):
    """The load or the DBMS under it failed."""

    kind = "workload"
    exit_code = 4


class UsageError(AgentError):
    """The call itself is wrong."""

    kind = "usage"
    exit_code = 2
