"""Raw files of a run -> Parquet tables, and the tables -> rows."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fleetmark import store
from fleetmark.errors import ResultError
from fleetmark.tables import counters, evidence, schema, series, steps
from fleetmark.tables.arrow import to_arrow
from fleetmark.tables.planned import PlannedTrial
from fleetmark.tables.raw import RawStep, planned_trials, raw_steps
from fleetmark.tables.schema import Row

_STAMP = "stamp.json"


def build(run: store.RunDirectory) -> Path:
    """Write all tables of a run from its raw files; returns their directory.

    Rebuilding replaces each table atomically and gives equal rows. A run that is not complete
    gives the rows it has, marked partial. Raises ResultError on damaged raw files.
    """
    before = _fingerprint(run)
    rows = _rows(run)
    for table in schema.ALL.values():
        buffer = io.BytesIO()
        pq.write_table(to_arrow(table, rows[table.name]), buffer, compression="zstd")
        store.write_atomic(run.tables / f"{table.name}.parquet", buffer.getvalue())
    # Last, so that a build that was cut off is built again.
    stamp = {"version": 1, "schema": schema.SCHEMA_VERSION, "raw": before}
    store.write_json(run.tables / _STAMP, stamp)
    return run.tables


def ensure(run: store.RunDirectory) -> Path:
    """The directory of the tables, built anew where missing or older than the raw files."""
    stamp = run.tables / _STAMP
    if stamp.is_file():
        document = store.read_json(stamp)
        fresh = (
            document.get("schema") == schema.SCHEMA_VERSION
            and document.get("raw") == _fingerprint(run)
            and all((run.tables / f"{name}.parquet").is_file() for name in schema.ALL)
        )
        if fresh:
            return run.tables
    return build(run)


def count_taints(run: store.RunDirectory) -> int:
    """How many taints a run has, from its small files alone."""
    if not run.plan_json.is_file():
        return 0
    return len(evidence.taint_rows(run, planned_trials(run)))


def read(run: store.RunDirectory, table: str, merged: bool = False) -> list[Row]:
    """The rows of one table; `merged` leaves out those of single hosts where it has such.

    Raises ResultError when it is missing or cannot be read.
    """
    path = run.tables / f"{table}.parquet"
    only_merged = merged and "host" in schema.ALL[table].names
    try:
        filters = [("host", "=", "")] if only_merged else None
        rows: list[Row] = pq.read_table(path, filters=filters).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ResultError(
            f"cannot read the table {path}: {error}",
            next_step=f"build it again: fleetmark report {run.run_id}",
        ) from None
    return rows


def _fingerprint(run: store.RunDirectory) -> str:
    """Changes when any raw file is added, grows or is replaced."""
    digest = hashlib.sha256()
    for path in store.evidence_files(run):
        status = (run.path / path).stat()
        digest.update(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _rows(run: store.RunDirectory) -> dict[str, list[Row]]:
    trials = planned_trials(run)
    taints = evidence.taint_rows(run, trials)
    checks, deviations = evidence.contract_rows(run)
    rows: dict[str, list[Row]] = {name: [] for name in schema.ALL}
    rows["taints"] = taints
    rows["contracts"], rows["deviations"] = checks, deviations
    rows["facts"] = evidence.fact_rows(run)
    rows["builds"] = evidence.build_rows(run, trials)
    rows["variables"] = evidence.variable_rows(run, trials)
    for trial in trials:
        rows["trials"].append(evidence.trial_row(run, trial, taints))
        for raw in raw_steps(run, trial):
            _add_step(rows, raw, taints)
    return rows


def _add_step(rows: dict[str, list[Row]], raw: RawStep, taints: Sequence[Row]) -> None:
    step = steps.collect(raw)
    own = [
        t for t in taints if t["trial"] == raw.trial.id and t["step"] in ("", raw.plan.directory)
    ]
    rows["steps"].append(steps.step_row(step, own))
    rows["streams"] += steps.stream_rows(step)
    rows["histograms"] += steps.histogram_rows(step)
    rows["start_proof"] += steps.proof_rows(step)
    rows["series"] += series.series_rows(step)
    rows["host_series"] += series.host_series_rows(step)
    rows["dbms_series"] += series.dbms_series_rows(step)
    counted = counters.counter_row(step)
    if counted is not None:
        rows["counters"].append(counted)


@dataclass(frozen=True)
class RunTables:
    """The tables of one run, each read once when it is first asked for."""

    run: store.RunDirectory
    trials_planned: tuple[PlannedTrial, ...]
    _cache: dict[str, list[Row]] = field(default_factory=dict, repr=False)

    def rows(self, table: str) -> list[Row]:
        """All rows of a table, in the order in which they were written."""
        if table not in self._cache:
            self._cache[table] = read(self.run, table)
        return self._cache[table]

    def merged_rows(self, table: str) -> list[Row]:
        """The rows of a table that stand for all hosts together; not kept."""
        return read(self.run, table, merged=True)


def open_tables(run: store.RunDirectory) -> RunTables:
    """The tables of a run, built first where needed."""
    ensure(run)
    return RunTables(run, tuple(planned_trials(run)))
