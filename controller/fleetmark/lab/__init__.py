"""Labs: disposable fleets on this machine, which leave nothing behind."""

from fleetmark.lab.life import LabHostStatus, LabStatus, down, status, up
from fleetmark.lab.spec import Kind, LabSpec, default_kind, fleet, missing_packages
from fleetmark.lab.state import inventory_path, names
from fleetmark.lab.vm import VmHostStatus, power_off, power_on, reboot
from fleetmark.lab.vm_spec import Accel, VmDisk, VmSpec

__all__ = [
    "Accel",
    "Kind",
    "LabHostStatus",
    "LabSpec",
    "LabStatus",
    "VmDisk",
    "VmHostStatus",
    "VmSpec",
    "default_kind",
    "down",
    "fleet",
    "inventory_path",
    "missing_packages",
    "names",
    "power_off",
    "power_on",
    "reboot",
    "status",
    "up",
]
