"""The tables of a run as views of an SQL engine, and as CSV files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from fleetmark import store
from fleetmark.errors import ConfigError, InfrastructureError
from fleetmark.tables import schema
from fleetmark.tables.build import ensure


@dataclass(frozen=True)
class Answer:
    """The columns and rows of a query."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]


def sql(run: store.RunDirectory, query: str) -> Answer:
    """Ask one query of a run; every table of the schema is a view.

    The engine may not touch any file beside the tables. Raises ConfigError with its own words
    when the query is wrong.
    """
    directory = ensure(run)
    connection = duckdb.connect(":memory:")
    try:
        for name in schema.ALL:
            # Read now: a view over the file would need the file access that is taken below.
            rows = pq.read_table(directory / f"{name}.parquet")
            connection.register(name, rows)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        result = connection.execute(query)
        columns = tuple(str(column[0]) for column in result.description or ())
        return Answer(columns, result.fetchall())
    except duckdb.Error as error:
        raise ConfigError(
            "the query cannot be answered",
            evidence=str(error),
            next_step=f"tables: {', '.join(schema.ALL)}",
        ) from None
    finally:
        connection.close()


def export(run: store.RunDirectory, directory: Path) -> list[Path]:
    """Write every table as a CSV file with a heading; returns the files.

    Raises InfrastructureError when they cannot be written.
    """
    tables = ensure(run)
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in schema.ALL:
            path = directory / f"{name}.csv"
            arrow_csv.write_csv(pq.read_table(tables / f"{name}.parquet"), path)
            written.append(path)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write to {directory}: {error.strerror or error}",
            next_step="choose another place with --to",
        ) from None
    return written
