"""Workloads: a name and parameters -> steps; a file each."""

import difflib
from typing import Any

from fleetmark.workloads.insert_benchmark import InsertBenchmark
from fleetmark.workloads.step import Sla, Step
from fleetmark.workloads.workload import Workload

KINDS: dict[str, type[Workload]] = {"insert_benchmark": InsertBenchmark}

__all__ = ["KINDS", "Sla", "Step", "UnknownWorkload", "Workload", "parse"]


class UnknownWorkload(ValueError):
    """The file names a workload that does not exist, or none at all."""


def parse(item: Any) -> Workload:
    """One entry of `workloads:`, either a name or a mapping of one name to parameters.

    Raises UnknownWorkload, or pydantic's ValidationError with locations below the name.
    """
    if isinstance(item, str):
        item = {item: {}}
    if not isinstance(item, dict) or len(item) != 1:
        raise UnknownWorkload(
            "a workload is a name, or one name with its parameters indented below it"
        )
    ((kind, parameters),) = item.items()
    if kind not in KINDS:
        close = difflib.get_close_matches(str(kind), KINDS, n=1, cutoff=0.4)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UnknownWorkload(f"unknown workload {kind!r}{hint} (known: {', '.join(KINDS)})")
    return KINDS[kind].model_validate(parameters or {})
