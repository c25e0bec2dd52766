"""What an NVMe disk says of itself through nvme-cli: LBA formats, write cache, health.

Bits of `critical_warning` are those of the NVM Express base specification, SMART / Health log.
"""

import json
import os
import shutil
import subprocess
from typing import Any, Dict, List, Optional, Sequence

from ansible.module_utils.fleetmark_disks import Disk, DiskError

_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_COMMAND_SECONDS = 3600.0
"""A format with erasure of a large disk takes minutes."""
_WARNINGS = {
    0: "spare blocks run out",
    1: "temperature out of bounds",
    2: "reliability degraded",
    3: "read-only",
    4: "backup of the volatile memory failed",
    5: "persistent memory region read-only or unreliable",
}
_KELVIN = 273


def is_nvme(disk: Disk) -> bool:
    """Whether nvme-cli can be asked about a disk."""
    return disk.name.startswith("nvme")


def has_tool() -> bool:
    """Whether nvme-cli is there."""
    return shutil.which("nvme", path=_PATH) is not None


def report(disk: Disk) -> Dict[str, Any]:
    """Formats, cache and health; None where the disk does not answer."""
    namespace = _ask("id-ns", disk.device)
    controller = _ask("id-ctrl", disk.device)
    health = _ask("smart-log", disk.device)
    formats = lba_formats(namespace) if namespace else None
    return {
        "lba_formats": formats,
        "lba_bytes": next((f["bytes"] for f in formats or [] if f["in_use"]), None),
        "has_volatile_write_cache": bool(controller["vwc"] & 1) if controller else None,
        "volatile_write_cache": _write_cache(disk.device),
        "health": health_of(health) if health else None,
    }


def lba_formats(namespace: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The LBA formats of an answer to id-ns: size of a block and of its metadata, in bytes."""
    in_use = int(namespace.get("flbas", 0)) & 0xF
    return [
        {
            "index": index,
            "bytes": 1 << int(each["ds"]),
            "metadata_bytes": int(each["ms"]),
            "in_use": index == in_use,
        }
        for index, each in enumerate(namespace.get("lbafs", []))
        if int(each["ds"])
    ]


def health_of(log: Dict[str, Any]) -> Dict[str, Any]:
    """The health of an answer to smart-log; `warnings` holds the critical warning in words."""
    critical = log.get("critical_warning", 0)
    # Newer nvme-cli gives an object with the bits parted.
    bits = int(critical.get("value", 0) if isinstance(critical, dict) else critical)
    temperature = log.get("temperature")
    return {
        "critical_warning": bits,
        "warnings": [words for bit, words in _WARNINGS.items() if bits >> bit & 1],
        "temperature_celsius": None if temperature is None else int(temperature) - _KELVIN,
        "available_spare_percent": log.get("avail_spare"),
        "used_percent": log.get("percent_used", log.get("percentage_used")),
        "media_errors": log.get("media_errors"),
        "unsafe_shutdowns": log.get("unsafe_shutdowns"),
        "power_on_hours": log.get("power_on_hours"),
    }


def format_to(disk: Disk, lba_bytes: int) -> None:
    """Format a disk to a block size, without metadata; all data on it is lost. Raises DiskError."""
    formats = lba_formats(_ask("id-ns", disk.device) or {})
    fitting = [f["index"] for f in formats if f["bytes"] == lba_bytes and not f["metadata_bytes"]]
    if not fitting:
        sizes = ", ".join("%d+%d" % (f["bytes"], f["metadata_bytes"]) for f in formats)
        raise DiskError(
            "%s has no format with blocks of %d bytes and no metadata; it has %s"
            % (disk.words, lba_bytes, sizes or "told none")
        )
    _call(["format", disk.device, "--lbaf=%d" % fitting[0], "--force"])


def _write_cache(device: str) -> Optional[str]:
    """Feature 6, the switch of the volatile write cache: on, off, or None if it has no such."""
    try:
        said = _call(["get-feature", device, "--feature-id=6", "--human-readable"])
    except DiskError:
        return None
    value = said.lower()
    if "enabled" in value:
        return "on"
    return "off" if "disabled" in value else None


def _ask(what: str, device: str) -> Optional[Dict[str, Any]]:
    try:
        answer: Dict[str, Any] = json.loads(_call([what, device, "--output-format=json"]))
    except (DiskError, ValueError):
        return None
    return answer


def _call(arguments: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            ["nvme", *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_COMMAND_SECONDS,
            env={**os.environ, "LC_ALL": "C", "PATH": _PATH},
        )
    except FileNotFoundError:
        raise DiskError("nvme-cli is not installed on this host") from None
    except subprocess.TimeoutExpired:
        raise DiskError("nvme %s takes more than an hour" % arguments[0]) from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise DiskError("nvme %s failed: %s" % (" ".join(arguments), said or "it said nothing"))
    return done.stdout
