"""What provisioning would make of the disks that an experiment asks for, asked of the hosts."""

import json
import threading
from pathlib import Path
from typing import Any

from fleetmark import tuning
from fleetmark.errors import ResultError
from fleetmark.plan import NOT_LOOKED_AT, Disk, Plan
from fleetmark.provision.play import Provisioning, ProvisionResult, run
from fleetmark.tuning import Storage


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
    hosts = [host for host, asked in plan.tuning.items() if asked.storage]
    if not hosts:
        return []
    answers = directory / "hosts"
    variables = {**tuning_variables(plan), "provision_disks_directory": str(answers.absolute())}
    work = Provisioning(inventory, hosts, directory, variables, playbook="disks.yml")
    result = run(work, cancel=cancel)
    return [
        disk
        for host in hosts
        for storage in plan.tuning[host].storage
        for disk in _disks(answers / host, host, storage, result)
    ]


def _disks(answers: Path, host: str, storage: Storage, result: ProvisionResult) -> list[Disk]:
    path = answers / f"disks{storage.mount.replace('/', '_')}.json"
    where = (storage.mount, storage.filesystem)
    if not path.is_file():
        why = result.hosts[host].message
        words = ", ".join(choice.words for choice in storage.disks)
        return [Disk(host, words, NOT_LOOKED_AT, *where, "unknown", why)]
    try:
        told = json.loads(path.read_text())
        return [
            Disk(host, each["serial"], each["contents"], *where, each["fate"], each["why"])
            for each in told
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ResultError(f"{path} cannot be read: {error}") from None
