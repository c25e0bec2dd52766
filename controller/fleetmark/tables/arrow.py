"""Rows of the schema -> Arrow tables."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from fleetmark.tables.schema import SCHEMA_VERSION, Row, Table

_TYPES = {"text": pa.string(), "whole": pa.int64(), "real": pa.float64(), "yes_no": pa.bool_()}


def to_arrow(table: Table, rows: Iterable[Row]) -> pa.Table:
    """Rows as an Arrow table with the declared types; units are kept as field metadata.

    Raises ValueError when a row has not exactly the declared columns.
    """
    fields = [
        pa.field(c.name, _TYPES[c.kind], metadata={"unit": c.unit, "meaning": c.meaning})
        for c in table.columns
    ]
    columns: dict[str, list[Any]] = {name: [] for name in table.names}
    expected = columns.keys()
    for row in rows:
        if row.keys() != expected:
            raise ValueError(f"{table.name}: columns {sorted(row.keys() ^ expected)} do not fit")
        for name, values in columns.items():
            values.append(row[name])
    schema = pa.schema(fields, metadata={"fleetmark_schema": str(SCHEMA_VERSION)})
    return pa.table(
        [pa.array(columns[f.name], type=f.type) for f in fields],
        schema=schema,
    )
