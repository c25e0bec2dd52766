"""Provision the hosts of a plan, for `provision` and `run` alike."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetmark import builds, bundle
from fleetmark import provision as provisioning
from fleetmark.plan import Plan
from fleetmark.provision import HostProgress, ProvisionResult


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
    """Put the agent, the DBMS packages and the builds on every host of the plan.

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
    work = provisioning.Provisioning(
        inventory=what.inventory,
        hosts=list(what.plan.hosts),
        directory=what.directory,
        variables=variables,
        check=what.check,
    )
    return provisioning.run(work, progress, cancel)


def line(progress: HostProgress) -> str:
    """What to print of a host's progress; empty for what changes nothing."""
    if progress.outcome in ("changed", "failed", "unreachable"):
        return f"  {progress.host}: {progress.task}: {progress.outcome}"
    if progress.outcome == "running" and progress.text:
        return f"  {progress.host}: {progress.text}"
    return ""
