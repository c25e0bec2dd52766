"""Provisioning: the playbooks and roles, run over a fleet with per-host progress and status."""

from fleetmark.provision.disks import look_at_disks, tuning_variables
from fleetmark.provision.events import HostProgress, HostStatus
from fleetmark.provision.play import (
    Provisioning,
    ProvisionResult,
    ansible_content,
    run,
    variables,
)

__all__ = [
    "HostProgress",
    "HostStatus",
    "ProvisionResult",
    "Provisioning",
    "ansible_content",
    "look_at_disks",
    "run",
    "tuning_variables",
    "variables",
]
