"""The contract: is a host what the experiment says? Declared state against facts. Pure."""

import fnmatch
from dataclasses import dataclass
from typing import Any

from fleetmark.experiment import Contract

NOT_READABLE = "not readable"


@dataclass(frozen=True)
class Deviation:
    """One item that is not as declared."""

    item: str
    expected: str
    observed: str


def checked_items(contract: Contract) -> list[str]:
    """The items that a contract asks for, in the order of its fields."""
    return [
        name
        for name in type(contract).model_fields
        if name != "where_there_is_one" and getattr(contract, name) not in (None, [])
    ]


def check(contract: Contract, facts: dict[str, Any]) -> list[Deviation]:
    """Every item asked for that the facts of a host (docs/formats.md) do not show.

    `kernel` may hold shell wildcards (`6.1.*`). A mount option asked for must be among those in
    effect. What could not be read is a deviation: a contract is kept by evidence only.
    """
    deviations = []
    for item in checked_items(contract):
        expected = getattr(contract, item)
        observed = _observed(item, facts)
        if observed is None and item in contract.where_there_is_one and not _has(item, facts):
            continue
        if not _agrees(item, expected, observed):
            deviations.append(Deviation(item, _words(expected), _words(observed)))
    return deviations


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[Deviation]:
    """What must not change during a trial and did, whether declared or not."""
    deviations = []
    for item in ("boot_id", "kernel", "clocksource", "governor", "smt", "data_scheduler"):
        was, now = _observed(item, before), _observed(item, after)
        if was != now:
            deviations.append(Deviation(item, _words(was), _words(now)))
    return deviations


def _observed(item: str, facts: dict[str, Any]) -> Any:
    cpu = facts.get("cpu") or {}
    data = facts.get("data") or {}
    if item == "smt":
        return _smt(cpu)
    if item == "governor":
        return cpu.get("governor")
    if item.startswith("data_"):
        return data.get(item.removeprefix("data_"))
    return facts.get(item)


def _smt(cpu: dict[str, Any]) -> str | None:
    """By the topology first: some hypervisors say that SMT is not active and show siblings."""
    threads, active = cpu.get("threads_per_core"), cpu.get("smt_active")
    if threads is None and active is None:
        return None
    return "on" if (threads or 1) > 1 or active else "off"


def _has(item: str, facts: dict[str, Any]) -> bool:
    """Whether a host has such a thing at all. Without a driver there is no governor to read."""
    return item != "governor" or (facts.get("cpu") or {}).get("driver") is not None


def _agrees(item: str, expected: Any, observed: Any) -> bool:
    if observed is None:
        return False
    if item == "kernel":
        return fnmatch.fnmatchcase(str(observed), str(expected))
    if item == "data_mount_options":
        return set(expected) <= set(observed)
    return bool(str(observed) == str(expected))


def _words(value: Any) -> str:
    if value is None:
        return NOT_READABLE
    return ",".join(str(v) for v in value) if isinstance(value, list) else str(value)
