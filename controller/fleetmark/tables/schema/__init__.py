"""Every table of a run: its columns with type, unit and meaning, in one place.

`host` is empty where a row stands for all hosts of a step together. Times named `second` count
from the release time T0 on the controller's clock. All latencies are microseconds.
"""

from fleetmark.tables.schema.column import Row, Table
from fleetmark.tables.schema.evidence import (
    BUILDS,
    CONTRACTS,
    DEVIATIONS,
    FACTS,
    TAINTS,
    VARIABLES,
)
from fleetmark.tables.schema.hosts import COUNTERS, DBMS_SERIES, HOST_SERIES
from fleetmark.tables.schema.load import HISTOGRAMS, SERIES, START_PROOF, STEPS, STREAMS, TRIALS

__all__ = ["ALL", "COUNTERS", "SCHEMA_VERSION", "TRIALS", "Row", "Table"]

SCHEMA_VERSION = 1

_IN_ORDER = (
    TRIALS,
    STEPS,
    STREAMS,
    HISTOGRAMS,
    SERIES,
    COUNTERS,
    START_PROOF,
    HOST_SERIES,
    DBMS_SERIES,
    FACTS,
    BUILDS,
    VARIABLES,
    CONTRACTS,
    DEVIATIONS,
    TAINTS,
)

ALL: dict[str, Table] = {table.name: table for table in _IN_ORDER}
