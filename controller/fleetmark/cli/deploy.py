"""Provision the hosts of a plan, for `provision` and `run` alike."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetmark import bundle
from fleetmark import provision as provisioning
from fleetmark.plan import Plan
from fleetmark.provision import HostProgress, ProvisionResult

PACKAGES = {
    "mariadb": "mariadb-server",
    "mysql": "mysql-server",
    "percona": "percona-server-server",
}
"""The distribution's package of a flavour."""


@dataclass(frozen=True)
class Deployment:
    """Where to deploy to; `directory` gets Ansible's evidence and the agent as deployed."""

    plan: Plan
    inventory: Path
    directory: Path
    check: bool = False


def deploy(
    what: Deployment, progress: Callable[[HostProgress], None], cancel: threading.Event
) -> ProvisionResult:
    """Put the agent and the DBMS packages on every host of the plan.

    Raises InfrastructureError when Ansible itself fails, Interrupted when it was cancelled;
    what failed on a host is in the result.
    """
    what.directory.mkdir(parents=True, exist_ok=True)
    agent = bundle.build(what.directory / "fleetmark-agent.pyz")
    builds = [build for build in what.plan.builds if build.source == "package"]
    variables = provisioning.variables(
        agent,
        [target.db for target in what.plan.targets],
        sorted({PACKAGES[build.flavour] for build in builds}),
    )
    work = provisioning.Provisioning(
        inventory=what.inventory,
        hosts=list(what.plan.hosts),
        directory=what.directory,
        variables=variables,
        check=what.check,
    )
    return provisioning.run(work, progress, cancel)
