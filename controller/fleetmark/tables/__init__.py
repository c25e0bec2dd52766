"""Tables: the raw files of a run -> Parquet rows, rebuildable at any time."""

from fleetmark.tables.build import RunTables, build, count_taints, ensure, open_tables, read
from fleetmark.tables.schema import ALL, Row

__all__ = ["ALL", "Row", "RunTables", "build", "count_taints", "ensure", "open_tables", "read"]
