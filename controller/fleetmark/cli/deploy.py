"""Provision the hosts of a plan, for `provision` and `run` alike."""

import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetmark import builds, bundle
from fleetmark import provision as provisioning
from fleetmark.plan import Disk, Plan
from fleetmark.provision import HostProgress, ProvisionResult


@dataclass(frozen=True)
class Deployment:
    """Where to deploy to; `directory` gets Ansible's evidence and the agent as deployed.

    `hosts` and `tags` narrow the work to some hosts and some kinds of tasks; empty is all.
    """

    plan: Plan
    inventory: Path
    directory: Path
    check: bool = False
    hosts: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The hosts to deploy to."""
        return [name for name in self.plan.hosts if name in self.hosts or not self.hosts]


def deploy(
    what: Deployment, progress: Callable[[HostProgress], None], cancel: threading.Event
) -> ProvisionResult:
    """Tune every host of the plan, and put the agent, the DBMS packages and the builds on it.

    Raises InfrastructureError when Ansible itself fails, Interrupted when it was cancelled;
    what failed on a host is in the result.
    """
    what.directory.mkdir(parents=True, exist_ok=True)
    agent = bundle.build(what.directory / "fleetmark-agent.pyz")
    packaged = [build for build in what.plan.builds if build.source == "package"]
    variables = provisioning.variables(
        agent,
        [target.db for target in what.plan.targets],
        sorted({builds.PACKAGES[build.flavour] for build in packaged}),
    )
    variables["provision_engine_packages"] = sorted(
        {package for build in packaged for package in builds.engine_packages(build)}
    )
    variables["provision_builds"] = [
        builds.role_variables(build) for build in what.plan.builds if builds.has_record(build)
    ]
    variables.update(provisioning.tuning_variables(what.plan))
    work = provisioning.Provisioning(
        inventory=what.inventory,
        hosts=what.names,
        directory=what.directory,
        variables=variables,
        check=what.check,
        tags=what.tags,
    )
    return provisioning.run(work, progress, cancel)


def look_at_disks(what: Deployment, cancel: threading.Event) -> list[Disk]:
    """What would become of each disk that the experiment asks for; changes nothing."""
    tuning = {host: asked for host, asked in what.plan.tuning.items() if host in what.names}
    plan = dataclasses.replace(what.plan, tuning=tuning)
    return provisioning.look_at_disks(plan, what.inventory, what.directory / "disks", cancel)


def restore(
    what: Deployment, progress: Callable[[HostProgress], None], cancel: threading.Event
) -> ProvisionResult:
    """Take the tuning of hosts back to what it was before. Raises as `deploy` does."""
    work = provisioning.Provisioning(
        inventory=what.inventory,
        hosts=what.names,
        directory=what.directory,
        check=what.check,
        playbook="restore.yml",
    )
    return provisioning.run(work, progress, cancel)


def line(progress: HostProgress) -> str:
    """What to print of a host's progress; empty for what changes nothing."""
    if progress.outcome in ("changed", "failed", "unreachable"):
        return f"  {progress.host}: {progress.task}: {progress.outcome}"
    if progress.outcome == "running" and progress.text:
        return f"  {progress.host}: {progress.text}"
    return ""
