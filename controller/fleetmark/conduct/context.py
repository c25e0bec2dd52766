"""What the parts of a run share while it is going."""

import threading
from dataclasses import dataclass, field
from typing import Any

from fleetmark import store
from fleetmark.conduct.links import HostLink
from fleetmark.conduct.render import RenderedConfig
from fleetmark.experiment import Policy, Target
from fleetmark.ledger import Ledger
from fleetmark.plan import Plan, Trial
from fleetmark_agent.job import Connection

DBMS_USER = "fleetmark"
DATABASE = "fleetmark"


@dataclass(frozen=True)
class Patience:
    """How long the conductor waits before it gives a host up, in seconds."""

    lost_seconds: float = 60.0
    """A host that has not answered for so long, when all others have ended, is left behind."""
    lead_seconds: float = 1.0
    """Least time between the release and T0."""
    lead_factor: float = 3.0
    """T0 is at least so many times further away than the slowest answer took."""


@dataclass(frozen=True)
class Taint:
    """A reason not to trust a result. `step` is the step's directory name, "" for the trial."""

    step: str
    kind: str
    text: str

    def record(self) -> dict[str, str]:
        """As stored in trial.json."""
        return {"step": self.step, "kind": self.kind, "text": self.text}


@dataclass(frozen=True)
class RunContext:
    """One run: the plan, its directory, its hosts; `facts` by host."""

    plan: Plan
    policy: Policy
    run: store.RunDirectory
    links: dict[str, HostLink]
    ledger: Ledger
    stop: threading.Event
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True)
class TrialContext:
    """One attempt of a trial. `directory` is its name on the hosts and in the run directory."""

    run: RunContext
    trial: Trial
    target: Target
    attempt: int
    directory: str
    rendered: RenderedConfig
    password: str = field(repr=False)

    @property
    def db(self) -> HostLink:
        """The database host."""
        return self.run.links[self.target.db]

    @property
    def loads(self) -> list[HostLink]:
        """The load hosts, in the order in which the load is dealt out."""
        return [self.run.links[name] for name in self.target.load]

    def remote(self, link: HostLink, part: str) -> str:
        """A directory of this trial on a host: a step's, or `dbms`."""
        return f"{link.host.base_dir}/runs/{self.run.run.run_id}/{self.directory}/{part}"

    @property
    def over_network(self) -> Connection:
        """How load hosts reach the instance."""
        host = self.db.host
        return Connection(database_address(self.run, host.name), host.db_port, DBMS_USER, DATABASE)


def database_address(run: RunContext, name: str) -> str:
    """Where load hosts reach the DBMS of a host."""
    host = run.plan.hosts[name]
    if host.db_address:
        return host.db_address
    return "127.0.0.1" if host.connection == "local" else host.address
