"""How the kernel runs CPUs and memory: read it, set it, and remember how it was.

A program of its own as well: the boot unit calls it with the file of wanted values.

    python3 fleetmark_cpu_state.py /etc/fleetmark/cpu.json

All paths are below `root`, so that a made-up /sys can be tried. Sources: the kernel's
Documentation/ABI/testing/sysfs-devices-system-cpu, admin-guide/pm/cpufreq and cpuidle,
admin-guide/mm/transhuge, admin-guide/sysctl.
"""

import glob
import json
import os
import re
import sys
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Set

_CPU = "sys/devices/system/cpu"
_ITEMS = (
    "smt",
    "governor",
    "boost",
    "idle_latency_us",
    "numa_balancing",
    "transparent_hugepages",
    "swappiness",
)
"""In this order: a CPU that goes offline needs no governor."""


class CpuError(Exception):
    """A value cannot be set on this host."""


@dataclass(frozen=True)
class Host:
    """The kernel's files below `root`. Every read gives None for what this host does not have."""

    root: str = "/"

    def path(self, *parts: str) -> str:
        """A path of this host."""
        return os.path.join(self.root, *parts)

    def text(self, path: str) -> Optional[str]:
        """A one-line file; None when it is not there."""
        try:
            with open(path, encoding="utf-8") as handle:
                return handle.read().strip()
        except OSError:
            return None

    def write(self, path: str, value: str) -> None:
        """Raises CpuError with the kernel's answer."""
        try:
            with open(path, "w", encoding="utf-8") as handle:
                handle.write(value)
        except OSError as error:
            raise CpuError(
                "the kernel refuses %s in %s: %s" % (value, path, error.strerror)
            ) from None

    def read(self, item: str) -> Any:
        """The value of an item now."""
        return getattr(self, "_read_" + item)()

    def set(self, item: str, value: Any) -> None:
        """Set an item. Raises CpuError when the kernel refuses."""
        getattr(self, "_set_" + item)(value)

    def threads_per_core(self) -> int:
        """The most threads that share a core and are online, by the topology itself.

        Some hypervisors say notsupported and show siblings all the same.
        """
        most = 1
        for path in glob.glob(self.path(_CPU, "cpu[0-9]*/topology/thread_siblings_list")):
            most = max(most, len(_cpu_list(self.text(path) or "")))
        return most

    def _read_smt(self) -> Optional[str]:
        control = self.text(self.path(_CPU, "smt/control"))
        if self.threads_per_core() > 1:
            return "on"
        # "on" without siblings: the CPU has one thread a core, and nothing is left to switch off.
        return None if control is None else "off"

    def _set_smt(self, value: str) -> None:
        path = self.path(_CPU, "smt/control")
        control = self.text(path)
        if control in (None, "notsupported", "notimplemented"):
            raise CpuError(
                "SMT is %s, asked for is %s, and the kernel cannot switch it (%s says %s);"
                " switch it in the firmware, or by the machine type of a cloud"
                % (self._read_smt() or "unknown", value, path, control or "nothing")
            )
        if control == "forceoff":
            raise CpuError(
                "SMT was switched off for good at boot (nosmt=force); it comes back only with"
                " another kernel command line"
            )
        self.write(path, value)
        if self._read_smt() != value and value == "off":
            raise CpuError("%s took off, but cores still have two threads" % path)

    def _read_governor(self) -> Optional[str]:
        found = sorted({self.text(path) or "" for path in self._policies("scaling_governor")})
        return " ".join(found) if found else None

    def _set_governor(self, value: str) -> None:
        for path in self._policies("scaling_governor"):
            known = self.text(os.path.join(os.path.dirname(path), "scaling_available_governors"))
            if known is not None and value not in known.split():
                raise CpuError("there is no governor %s; the driver has %s" % (value, known))
            self.write(path, value)

    def _policies(self, name: str) -> List[str]:
        return sorted(glob.glob(self.path(_CPU, "cpufreq/policy*", name)))

    def _boost_files(self) -> "tuple[str, str, bool]":
        return (
            self.path(_CPU, "cpufreq/boost"),
            self.path(_CPU, "intel_pstate/no_turbo"),
            os.path.exists(self.path(_CPU, "cpufreq/boost")),
        )

    def _read_boost(self) -> Optional[str]:
        boost, no_turbo, has_boost = self._boost_files()
        value = self.text(boost) if has_boost else self.text(no_turbo)
        if value is None:
            return None
        return "on" if (value == "1") == has_boost else "off"

    def _set_boost(self, value: str) -> None:
        boost, no_turbo, has_boost = self._boost_files()
        self.write(boost if has_boost else no_turbo, str(int((value == "on") == has_boost)))

    def _idle_states(self) -> Dict[str, int]:
        """Directory of each idle state of each CPU, and its exit latency in microseconds."""
        tops = glob.glob(self.path(_CPU, "cpu[0-9]*/cpuidle/state[0-9]*"))
        found = {top: self.text(top + "/latency") or "" for top in sorted(tops)}
        return {top: int(latency) for top, latency in found.items() if latency.isdigit()}

    def _read_idle_latency_us(self) -> Optional[int]:
        """The exit latency of the deepest idle state that may be used."""
        states = self._idle_states()
        if not states:
            return None
        used = [us for top, us in states.items() if self.text(top + "/disable") == "0"]
        return max(used, default=0)

    def _set_idle_latency_us(self, value: int) -> None:
        for top, latency_us in self._idle_states().items():
            self.write(top + "/disable", "0" if latency_us <= int(value) else "1")

    def _read_numa_balancing(self) -> Optional[str]:
        value = self.text(self.path("proc/sys/kernel/numa_balancing"))
        return None if value is None else ("off" if value == "0" else "on")

    def _set_numa_balancing(self, value: str) -> None:
        path = self.path("proc/sys/kernel/numa_balancing")
        self.write(path, "1" if value == "on" else "0")

    def _read_transparent_hugepages(self) -> Optional[str]:
        value = self.text(self.path("sys/kernel/mm/transparent_hugepage/enabled"))
        match = re.search(r"\[([^]]+)\]", value or "")
        return match.group(1) if match else value

    def _set_transparent_hugepages(self, value: str) -> None:
        self.write(self.path("sys/kernel/mm/transparent_hugepage/enabled"), value)

    def _read_swappiness(self) -> Optional[int]:
        value = self.text(self.path("proc/sys/vm/swappiness"))
        return int(value) if value is not None else None

    def _set_swappiness(self, value: int) -> None:
        self.write(self.path("proc/sys/vm/swappiness"), str(value))


def _cpu_list(words: str) -> Set[int]:
    """`0-1,4` as a set."""
    found: Set[int] = set()
    for part in filter(None, words.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def differences(host: Host, wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """The items that are not as wanted, with what they are now; those that the host does not
    have are left out (`absent` names them)."""
    found = {}
    for item in _ITEMS:
        if wanted.get(item) is not None and item not in absent(host, wanted):
            now = host.read(item)
            if not _agrees(host, item, wanted[item], now):
                found[item] = now
    return found


def absent(host: Host, wanted: Mapping[str, Any]) -> List[str]:
    """The wanted items that this host does not have at all, as virtual machines have no governor.

    SMT that is wanted off is there by not being there.
    """
    return [i for i in _ITEMS if wanted.get(i) is not None and i != "smt" and host.read(i) is None]


def _agrees(host: Host, item: str, wanted: Any, now: Any) -> bool:
    if item == "smt" and now is None:
        return str(wanted) == "off"
    if item == "idle_latency_us":
        states = host._idle_states()
        allowed = {top for top, us in states.items() if us <= int(wanted)}
        return all((host.text(t + "/disable") == "0") == (t in allowed) for t in states)
    return str(now) == str(wanted)


def apply(host: Host, wanted: Mapping[str, Any]) -> Dict[str, Any]:
    """Set what differs; what differed, with its value before. Raises CpuError at the first that
    the kernel refuses, and for one that it takes but does not keep."""
    before = differences(host, wanted)
    for item in before:
        host.set(item, wanted[item])
    left = differences(host, wanted)
    if left:
        words = ", ".join("%s is %s and not %s" % (i, now, wanted[i]) for i, now in left.items())
        raise CpuError("set without effect: %s" % words)
    return before


def main() -> int:
    """For the boot unit: apply the file named on the command line."""
    with open(sys.argv[1], encoding="utf-8") as handle:
        wanted = json.load(handle)
    status = 0
    for item in _ITEMS:
        # One by one: an item that fails must not keep the others from being set.
        try:
            for name, was in apply(Host(), {item: wanted.get(item)}).items():
                sys.stdout.write("%s: %s, was %s\n" % (name, wanted[name], was))
        except CpuError as error:
            sys.stderr.write("%s: %s\n" % (item, error))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
