"""The inventory: an ordinary Ansible inventory -> hosts and groups.

Ansible's own loader reads it, so anything Ansible reads works here.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Host:
    """One machine, and how to reach it.

    Read from the usual Ansible variables, and from these of our own: `fleetmark_base_dir`
    (the agent's home, default /var/lib/fleetmark), `fleetmark_data_dir` (where instances
    keep their data, default <base>/data), `fleetmark_db_port` (default 3306) and
    `fleetmark_db_address` (where load hosts reach the DBMS, default the host's address).
    """

    name: str
    address: str
    connection: Literal["ssh", "local"] = "ssh"
    port: int = 22
    user: str = ""
    key_file: str = ""
    known_hosts_file: str = ""
    python: str = "python3"
    become: bool = False
    base_dir: str = "/var/lib/fleetmark"
    data_dir: str = "/var/lib/fleetmark/data"
    db_port: int = 3306
    db_address: str = ""

    @property
    def agent(self) -> str:
        """Where the agent's zipapp lies on the host."""
        return f"{self.base_dir}/agent/fleetmark-agent.pyz"


@dataclass(frozen=True)
class Fleet:
    """All hosts of an inventory by name, and the members of its groups, both in file order."""

    source: str
    hosts: dict[str, Host]
    groups: dict[str, list[str]] = field(default_factory=dict)
