"""What provisioning would make of the disks that an experiment asks for, asked of the hosts."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetmark import tuning
from fleetmark.errors import ResultError
from fleetmark.plan import Disk, Plan
from fleetmark.provision.play import Provisioning, ProvisionResult, run


def tuning_variables(plan: Plan) -> dict[str, Any]:
    """The extra variables of all our playbooks: what is asked of each host, and the consent."""
    return {
        "provision_tuning": {
            host: tuning.role_variables(asked)
            for host, asked in plan.tuning.items()
            if asked.model_fields_set
        },
        "confirm_wipe": [consent.model_dump() for consent in plan.confirm_wipe],
    }


def look_at_disks(
    plan: Plan, inventory: Path, directory: Path, cancel: threading.Event | None = None
) -> list[Disk]:
    """Every disk that the plan has prepared, with its serial, its contents and its fate.

    Changes nothing. A host that cannot be asked has NOT_LOOKED_AT as contents, and in `why` the
    reason. `directory` gets the evidence.
    """
    hosts = list(dict.fromkeys(disk.host for disk in plan.disks if disk.host in plan.tuning))
    if not hosts:
        return []
    answers = directory / "hosts"
    variables = {**tuning_variables(plan), "provision_disks_directory": str(answers.absolute())}
    work = Provisioning(inventory, hosts, directory, variables, playbook="disks.yml")
    result = run(work, cancel=cancel)
    return [disk for host in hosts for disk in _disks(plan, host, answers / host, result)]


def _disks(plan: Plan, host: str, answers: Path, result: ProvisionResult) -> list[Disk]:
    paths = sorted(answers.glob("disks-*.json"))
    asked = [disk for disk in plan.disks if disk.host == host]
    if not result.hosts[host].ready or not paths:
        why = result.hosts[host].message
        return [replace(disk, fate="unknown", why=why) for disk in asked]
    found = []
    for path in paths:
        try:
            told = json.loads(path.read_text())
            found += [
                Disk(host, each["serial"], each["contents"], each["use"], each["fate"], each["why"])
                for each in told
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ResultError(f"{path} cannot be read: {error}") from None
    return found
