"""Labs: disposable fleets on this machine, which leave nothing behind."""

from fleetmark.lab.life import LabHostStatus, LabStatus, down, status, up
from fleetmark.lab.spec import LabSpec, default_kind, fleet, missing_packages
from fleetmark.lab.state import inventory_path, names

__all__ = [
    "LabHostStatus",
    "LabSpec",
    "LabStatus",
    "default_kind",
    "down",
    "fleet",
    "inventory_path",
    "missing_packages",
    "names",
    "status",
    "up",
]
