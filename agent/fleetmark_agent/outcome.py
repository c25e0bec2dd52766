"""How a job ended: the fields of the journal's last record."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, Optional

from fleetmark_agent import sysbench


@dataclass(frozen=True)
class Ended:
    """The `ended` record of docs/formats.md. `klass` is ok, workload or host."""

    reason: str
    klass: str = "ok"
    message: str = ""
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    load_cpu_seconds: Optional[float] = None
    sysbench_events: Optional[int] = None

    def fields(self) -> Dict[str, Any]:
        """As it goes into the journal, where the field is named `class`."""
        fields = dataclasses.asdict(self)
        fields["class"] = fields.pop("klass")
        return fields


def of_load(outcome: sysbench.Outcome, cpu_seconds: Optional[float]) -> Ended:
    """From the end of the load process."""
    return Ended(
        reason="completed" if outcome.klass == "ok" else "failed",
        klass=outcome.klass,
        message=outcome.message,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        load_cpu_seconds=cpu_seconds,
        sysbench_events=outcome.sysbench_events,
    )
