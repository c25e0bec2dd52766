"""The host sampler: what the machine did in an interval, from /proc and /sys.

Files stay open and are read again from their start; that costs a third of opening them anew.
The formats are those of the kernel's documentation (`proc`, `iostats`, `psi`).
"""

import glob
import os
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

_SECTOR_BYTES = 512
_READ_BYTES = 1 << 18
_CPU_NAMES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")

# Columns of a /proc/diskstats line after the name, the name that we give, and the unit.
_DISK_COLUMNS = (
    (0, "reads", 1),
    (2, "read_bytes", _SECTOR_BYTES),
    (3, "read_seconds", 0.001),
    (4, "writes", 1),
    (6, "write_bytes", _SECTOR_BYTES),
    (7, "write_seconds", 0.001),
    (9, "busy_seconds", 0.001),
    (11, "discards", 1),
    (15, "flushes", 1),
    (16, "flush_seconds", 0.001),
)
_NETWORK_COLUMNS = ((0, "rx_bytes"), (8, "tx_bytes"), (3, "rx_drops"), (11, "tx_drops"))
_MEMORY = {
    b"MemTotal:": "total_bytes",
    b"MemAvailable:": "available_bytes",
    b"Dirty:": "dirty_bytes",
}

Numbers = Dict[str, float]


@dataclass(frozen=True)
class HostCounters:
    """Counters since boot, and gauges, at one moment."""

    cpu: Numbers
    context_switches: int
    memory: Dict[str, int]
    disks: Dict[str, Numbers]
    network: Dict[str, Numbers]
    pressure: Numbers
    throttled: int
    cost_seconds: float
    monotonic: float = field(default_factory=time.monotonic)


def parse_cpu(stat: bytes) -> Numbers:
    """CPU seconds by kind, over all CPUs, of /proc/stat."""
    values = stat[: stat.index(b"\n")].split()[1:]
    return {name: int(v) / _CLOCK_TICKS for name, v in zip(_CPU_NAMES, values)}


def parse_context_switches(stat: bytes) -> int:
    """Context switches since boot, of /proc/stat."""
    at = stat.index(b"\nctxt ") + 6
    return int(stat[at : stat.index(b"\n", at)])


def parse_memory(text: bytes) -> Dict[str, int]:
    """Memory of /proc/meminfo in bytes."""
    kilobytes: Dict[bytes, int] = {}
    for line in text.splitlines():
        words = line.split()
        kilobytes[words[0]] = int(words[1])
    memory = {name: kilobytes[key] * 1024 for key, name in _MEMORY.items() if key in kilobytes}
    memory["swap_used_bytes"] = (
        kilobytes.get(b"SwapTotal:", 0) - kilobytes.get(b"SwapFree:", 0)
    ) * 1024
    return memory


def parse_disks(text: bytes, names: List[bytes]) -> Dict[str, Numbers]:
    """Counters of the named disks of /proc/diskstats; what an old kernel lacks is left out."""
    disks = {}
    for line in text.splitlines():
        words = line.split()
        if words[2] in names:
            values = [int(word) for word in words[3:]]
            disks[words[2].decode()] = {
                name: values[column] * unit
                for column, name, unit in _DISK_COLUMNS
                if column < len(values)
            }
    return disks


def parse_network(text: bytes) -> Dict[str, Numbers]:
    """Counters of the network interfaces of /proc/net/dev."""
    network: Dict[str, Numbers] = {}
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(b":")
        values = rest.split()
        network[name.strip().decode()] = {
            key: int(values[column]) for column, key in _NETWORK_COLUMNS
        }
    return network


def parse_pressure(text: bytes) -> Optional[float]:
    """Seconds in which some task waited, of a /proc/pressure file; None when there is none."""
    line = text.split(b"\n", 1)[0]
    return int(line.rpartition(b"total=")[2]) / 1e6 if line.startswith(b"some") else None


class HostSampler:
    """Takes the counters of this host and gives `host` records."""

    def __init__(self) -> None:
        self._stat = _open("/proc/stat")
        self._meminfo = _open("/proc/meminfo")
        self._diskstats = _open("/proc/diskstats")
        self._network = _open("/proc/self/net/dev")
        self._pressure = {name: _open("/proc/pressure/" + name) for name in ("cpu", "io", "memory")}
        throttles = "/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count"
        self._throttles = [_open(path) for path in sorted(glob.glob(throttles))]
        self._disks = [name.encode() for name in disk_names()]
        self._cpus = os.sysconf("SC_NPROCESSORS_ONLN")
        self._before = self.read()

    def read(self) -> HostCounters:
        """The counters now."""
        stat = _read(self._stat)
        pressure = {name: parse_pressure(_read(fd)) for name, fd in self._pressure.items()}
        return HostCounters(
            cpu=parse_cpu(stat),
            context_switches=parse_context_switches(stat),
            memory=parse_memory(_read(self._meminfo)),
            disks=parse_disks(_read(self._diskstats), self._disks),
            network=parse_network(_read(self._network)),
            pressure={name: value for name, value in pressure.items() if value is not None},
            throttled=sum(int(_read(fd) or 0) for fd in self._throttles),
            cost_seconds=time.process_time(),
        )

    def sample(self) -> Dict[str, Any]:
        """The `host` record of the time since the last call."""
        now, before = self.read(), self._before
        self._before = now
        return {
            "interval_seconds": round(now.monotonic - before.monotonic, 6),
            "cpu": _difference(now.cpu, before.cpu),
            "cpus": self._cpus,
            "context_switches": now.context_switches - before.context_switches,
            "memory": now.memory,
            "disks": {
                name: _difference(disk, before.disks.get(name, {}))
                for name, disk in now.disks.items()
            },
            "network": {
                name: _difference(interface, before.network[name])
                for name, interface in now.network.items()
                if name in before.network
            },
            "pressure": _difference(now.pressure, before.pressure),
            "throttled": now.throttled - before.throttled,
            "cost_seconds": round(now.cost_seconds - before.cost_seconds, 6),
        }

    def close(self) -> None:
        """Close the files."""
        single = [self._stat, self._meminfo, self._diskstats, self._network]
        for fd in [*single, *self._pressure.values(), *self._throttles]:
            if fd is not None:
                os.close(fd)


def disk_names() -> List[str]:
    """Whole disks and stacked devices that have a size; no partitions, no empty loop devices."""
    names = []
    for path in sorted(glob.glob("/sys/block/*")):
        try:
            with open(path + "/size", encoding="ascii") as handle:
                if int(handle.read()) > 0:
                    names.append(os.path.basename(path))
        except (OSError, ValueError):
            continue
    return names


def _difference(now: Numbers, before: Numbers) -> Dict[str, float]:
    return {name: round(value - before.get(name, 0), 6) for name, value in now.items()}


def _open(path: str) -> Optional[int]:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return None


def _read(fd: Optional[int]) -> bytes:
    """The whole of an open /proc file; empty when the host lacks it."""
    if fd is None:
        return b""
    try:
        return os.pread(fd, _READ_BYTES, 0)
    except OSError:
        # Pressure files exist but answer with an error where the kernel has them switched off.
        return b""
