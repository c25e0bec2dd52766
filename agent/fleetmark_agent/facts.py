"""What this host is: CPU, memory, storage, network, tools. What cannot be read is None.

Read from /proc and /sys alone (the kernel's ABI documentation names each file), so that it is
quick and the same everywhere; only the tools' versions are asked from the tools.
"""

import getpass
import glob
import os
import platform
import re
import shutil
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional

from fleetmark_agent import __version__, process, spool
from fleetmark_agent.facts_storage import disks, place

_CPU = "/sys/devices/system/cpu/"
_LISTEN = "0A"
_TOOL_SECONDS = 10.0


def text(path: str) -> Optional[str]:
    """A one-line file; None when it cannot be read or is empty."""
    try:
        with open(path, encoding="utf-8", errors="replace") as handle:
            return handle.read().strip() or None
    except OSError:
        return None


def chosen(path: str) -> Optional[str]:
    """The choice in brackets of a file like `always [madvise] never`."""
    match = re.search(r"\[([^]]+)\]", text(path) or "")
    return match.group(1) if match else None


def whole(value: Optional[str]) -> Optional[int]:
    """A whole number, None when it is none."""
    try:
        return int(value) if value is not None else None
    except ValueError:
        return None


def collect(store: spool.Spool, data_dir: str) -> Dict[str, Any]:
    """The facts of docs/formats.md. An empty `data_dir` means `<base>/data`."""
    # Tools are other programs: asked beside each other, they cost as much as the slowest.
    with ThreadPoolExecutor() as pool:
        versions = {name: pool.submit(tool_version, name) for name in _TOOL_VERSIONS}
        memory = _meminfo()
        claim = store.claimed_by()
        return {
            "version": 1,
            "hostname": socket.gethostname(),
            "boot_id": text("/proc/sys/kernel/random/boot_id"),
            "kernel": platform.release(),
            "os": _os_name(),
            "architecture": platform.machine(),
            "virtualization": virtualization(),
            "python": platform.python_version(),
            "cpu": cpu(),
            "memory_bytes": memory.get("MemTotal"),
            "swap_bytes": memory.get("SwapTotal"),
            "swappiness": whole(text("/proc/sys/vm/swappiness")),
            "transparent_hugepages": chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
            "clocksource": text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            "base": place(store.base),
            "data": place(data_dir or os.path.join(store.base, "data")),
            "disks": disks(),
            "network": network(),
            "tools": {name: version.result() for name, version in versions.items()},
            "listening_ports": listening_ports(),
            "agent": __version__,
            "claim": claim["run"] if claim else None,
            "user": _user(),
            "systemd": process.systemd_runs(),
        }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _os_name() -> Optional[str]:
    for path in ("/etc/os-release", "/usr/lib/os-release"):
        match = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text(path) or "", re.MULTILINE)
        if match:
            return match.group(1)
    return None


def _meminfo() -> Dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+) kB$", text("/proc/meminfo") or "", re.MULTILINE)
    return {name: int(value) * 1024 for name, value in found}


def virtualization() -> Optional[str]:
    """The kind of virtual machine or container; `none` on bare metal, None if unknown."""
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return "container"
    xen = text("/sys/hypervisor/type")
    if xen:
        return xen
    names = [text("/sys/class/dmi/id/" + name) for name in ("sys_vendor", "product_name")]
    product = " ".join(name for name in names if name).lower()
    for word, kind in _HYPERVISORS.items():
        if word in product:
            return kind
    if re.search(r"^flags\s*:.*\bhypervisor\b", text("/proc/cpuinfo") or "", re.MULTILINE):
        return "unknown hypervisor"
    # Without DMI (most ARM boards and some small machines) nothing can be said.
    return "none" if product else None


_HYPERVISORS = {
    "kvm": "kvm",
    "qemu": "qemu",
    "amazon ec2": "amazon",
    "google": "google",
    "microsoft": "hyper-v",
    "vmware": "vmware",
    "virtualbox": "virtualbox",
    "xen": "xen",
    "openstack": "openstack",
    "firecracker": "firecracker",
    "cloud hypervisor": "cloud-hypervisor",
}


def cpu() -> Dict[str, Any]:
    """Model, topology, frequency policy, mitigations."""
    numbers = sorted(
        int(path.rpartition("cpu")[2]) for path in glob.glob(_CPU + "cpu[0-9]*") if _online(path)
    )
    topology = [
        (
            text(_CPU + "cpu%d/topology/physical_package_id" % n),
            text(_CPU + "cpu%d/topology/core_id" % n),
        )
        for n in numbers
    ]
    known = bool(topology) and all(None not in pair for pair in topology)
    cores = len(set(topology)) if known else None
    policy = _CPU + "cpufreq/policy0/"
    return {
        "model": _cpuinfo("model name") or _cpuinfo("Processor") or _cpuinfo("CPU part"),
        "logical": len(numbers) or os.cpu_count(),
        "cores": cores,
        "sockets": len({package for package, _ in topology}) if known else None,
        "threads_per_core": len(numbers) // cores if cores else None,
        "numa_nodes": len(glob.glob("/sys/devices/system/node/node[0-9]*")) or None,
        "smt_control": text(_CPU + "smt/control"),
        "smt_active": _flag(text(_CPU + "smt/active")),
        "governor": text(policy + "scaling_governor"),
        "driver": text(policy + "scaling_driver"),
        "boost": _boost(),
        "microcode": text(_CPU + "cpu0/microcode/version") or _cpuinfo("microcode"),
        "mitigations": {
            os.path.basename(path): text(path)
            for path in sorted(glob.glob(_CPU + "vulnerabilities/*"))
        },
    }


def _online(path: str) -> bool:
    # The first CPU often has no such file: it cannot be switched off.
    return text(path + "/online") in (None, "1")


def _cpuinfo(key: str) -> Optional[str]:
    match = re.search(
        r"^%s\s*:\s*(.+)$" % re.escape(key), text("/proc/cpuinfo") or "", re.MULTILINE
    )
    return match.group(1).strip() if match else None


def _flag(value: Optional[str]) -> Optional[bool]:
    return {"0": False, "1": True}.get(value or "")


def _boost() -> Optional[bool]:
    boost = _flag(text(_CPU + "cpufreq/boost"))
    if boost is not None:
        return boost
    no_turbo = _flag(text(_CPU + "intel_pstate/no_turbo"))
    return None if no_turbo is None else not no_turbo


def network() -> List[Dict[str, Any]]:
    """The interfaces of this network namespace, the loopback left out."""
    addresses = _addresses()
    interfaces = []
    for _, name in socket.if_nameindex():
        if name == "lo":
            continue
        speed = whole(text("/sys/class/net/%s/speed" % name))
        interfaces.append(
            {
                "name": name,
                # Virtual interfaces say -1 or an invented number; -1 means unknown.
                "speed_mbps": speed if speed is not None and speed > 0 else None,
                "mtu": whole(text("/sys/class/net/%s/mtu" % name)),
                "addresses": addresses.get(name, []),
            }
        )
    return interfaces


def _addresses() -> Dict[str, List[str]]:
    """IPv4 by ioctl, IPv6 from /proc: neither needs another program."""
    import fcntl
    import struct

    found: Dict[str, List[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR
            except OSError:
                continue
            found.setdefault(name, []).append(socket.inet_ntoa(answer[20:24]))
    for line in (text("/proc/net/if_inet6") or "").splitlines():
        words = line.split()
        address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[0]))
        found.setdefault(words[5], []).append(address)
    return found


def listening_ports() -> List[int]:
    """TCP ports that something listens on in this network namespace."""
    ports = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (text(path) or "").splitlines()[1:]:
            words = line.split()
            if words[3] == _LISTEN:
                ports.add(int(words[1].rpartition(":")[2], 16))
    return sorted(ports)


_TOOL_VERSIONS = {
    "sysbench": r"sysbench (\S+)",
    "fio": r"fio-(\S+)",
    "mariadbd": r"Ver (\S+MariaDB\S*)",
    "mysqld": r"Ver (\S+)",
}


def tool_version(name: str) -> Optional[str]:
    """A tool's version as it says itself, None when it is not installed."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        return None
    try:
        said = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TOOL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(_TOOL_VERSIONS[name], said.stdout)
    return match.group(1) if match else None
