"""What every workload can do: give its steps for a number of load hosts."""

from abc import ABC, abstractmethod
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from fleetmark.errors import ConfigError
from fleetmark.workloads.step import Step


class Workload(BaseModel, ABC):
    """Base of all workloads. `kind` is the name in the experiment file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: ClassVar[str]

    name: str = ""

    @property
    def label(self) -> str:
        """The name in trials and tables: the user's, else the kind."""
        return self.name or self.kind

    @abstractmethod
    def steps(self, load_hosts: int) -> list[Step]:
        """All steps in order, the load divided over `load_hosts` hosts.

        Raises ConfigError when the parameters do not fit that number of hosts.
        """


def share_out(clients: int, load_hosts: int) -> list[tuple[int, int]]:
    """Divide clients over hosts: (first client, from 1, and how many) for each host.

    The first hosts get one more where it does not divide evenly. Raises ConfigError when a
    host would get none.
    """
    if clients < load_hosts:
        raise ConfigError(
            f"{clients} clients cannot be divided over {load_hosts} load hosts",
            next_step="raise clients, or give the target fewer load hosts",
        )
    each, rest = divmod(clients, load_hosts)
    shares = []
    first = 1
    for index in range(load_hosts):
        count = each + (1 if index < rest else 0)
        shares.append((first, count))
        first += count
    return shares
