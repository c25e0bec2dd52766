"""Rows of the tables trials, facts, variables, contracts, deviations and taints."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from fleetmark import ledger, store
from fleetmark.errors import ResultError
from fleetmark.tables.planned import PlannedTrial
from fleetmark.tables.raw import facts, trial_document
from fleetmark.tables.schema import TRIALS, Row

_CONTRACT = re.compile(r"^contract-(?P<trial>.+)-(?P<moment>before|after)\.json$")


def taint_rows(run: store.RunDirectory, trials: Sequence[PlannedTrial]) -> list[Row]:
    """Every taint once, whether a step, a trial or the ledger tells of it."""
    by_id = {trial.id: trial for trial in trials}
    by_directory = {trial.directory: trial for trial in trials}
    found: dict[tuple[str, str, str, str], None] = {}
    for trial in trials:
        for taint in (trial_document(run, trial) or {}).get("taints") or []:
            found[(trial.id, taint.get("step") or "", taint["kind"], taint["text"])] = None
        for step in trial.steps:
            path = run.trial(trial.directory) / step.directory / "step.json"
            for taint in (store.read_versioned(path) if path.is_file() else {}).get("taints") or []:
                found[(trial.id, step.directory, taint["kind"], taint["text"])] = None
    for record in ledger.read(run.ledger):
        if record["event"] == "taint" and record.get("trial") in by_directory:
            trial_id = by_directory[record["trial"]].id
            found[(trial_id, record.get("step") or "", record["kind"], record["text"])] = None
    return [
        {**by_id[trial].key, "step": step, "kind": kind, "text": text}
        for trial, step, kind, text in found
    ]


def trial_row(run: store.RunDirectory, trial: PlannedTrial, taints: Sequence[Row]) -> Row:
    """The row of a trial; one that never began has state `missing`."""
    document = trial_document(run, trial) or {}
    instance = document.get("instance") or {}
    stop = document.get("stop") or {}
    row: Row = dict.fromkeys(TRIALS.names)
    row.update(trial.key)
    row.update(
        db=trial.db,
        load=",".join(trial.load),
        attempt=document.get("attempt"),
        state=document.get("state") or "missing",
        started=document.get("started"),
        ended=document.get("ended"),
        dbms_version=instance.get("version"),
        dbms_flavour=instance.get("flavour"),
        start_seconds=instance.get("start_seconds"),
        stop_seconds=stop.get("seconds"),
        stopped_clean=stop.get("clean"),
        database_bytes=stop.get("database_bytes"),
        data_bytes=stop.get("data_bytes"),
        command=" ".join(instance.get("command") or []),
        rendered_config=document.get("rendered_config"),
        taints=sum(t["trial"] == trial.id for t in taints),
    )
    return row


def fact_rows(run: store.RunDirectory) -> list[Row]:
    """All facts of all hosts, names dotted; lists of plain values as one text."""
    directory = run.path / "hosts"
    rows = []
    for host in sorted(p.name for p in directory.iterdir()) if directory.is_dir() else []:
        for fact, value in _flatten("", facts(run, host) or {}):
            rows.append({"host": host, "fact": fact, "value": value})
    return rows


def build_rows(run: store.RunDirectory, trials: Sequence[PlannedTrial]) -> list[Row]:
    """What each build was made of on each database host, once, with the version it told."""
    rows: dict[tuple[str, str, str], Row] = {}
    for trial in trials:
        document = trial_document(run, trial) or {}
        found = document.get("build_facts")
        if not found:
            continue
        version = (document.get("instance") or {}).get("version")
        for fact, value in _flatten("", {"version": version, **found}):
            build = str(trial.key["build"])
            row = {"build": build, "host": trial.db, "fact": fact, "value": value}
            rows.setdefault((build, trial.db, fact), row)
    return list(rows.values())


def _flatten(prefix: str, value: Any) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flatten(f"{prefix}.{key}" if prefix else str(key), inner)
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        for index, inner in enumerate(value):
            name = inner.get("name", index) if isinstance(inner, dict) else index
            yield from _flatten(f"{prefix}.{name}", inner)
    else:
        yield prefix, plain_text(value)


def plain_text(value: Any) -> str | None:
    """A stored value as text; null stays null, since it means that it could not be read."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(v) for v in value)
    return str(value)


def variable_rows(run: store.RunDirectory, trials: Sequence[PlannedTrial]) -> list[Row]:
    """All server variables of all trials, with what was asked for and whether trials differ."""
    rows: list[Row] = []
    seen: dict[str, set[str | None]] = {}
    for trial in trials:
        path = run.trial(trial.directory) / "variables.json"
        if not path.is_file():
            continue
        effective = _effective(path)
        document = trial_document(run, trial) or {}
        asked = asked_variables(document.get("rendered_config") or "")
        mismatches = (document.get("instance") or {}).get("mismatches") or []
        changed = {str(m["name"]).lower(): m for m in mismatches}
        for name in sorted({*effective, *asked}):
            value = effective.get(name)
            seen.setdefault(name, set()).add(value)
            rows.append(
                {
                    **trial.key,
                    "variable": name,
                    "asked": asked.get(name),
                    "effective": value,
                    "mismatch": name in changed,
                    "differs": False,
                }
            )
    for row in rows:
        row["differs"] = len(seen[row["variable"]]) > 1
    return rows


def _effective(path: Any) -> dict[str, str | None]:
    document = store.read_json(path)
    if isinstance(document, dict) and isinstance(document.get("variables"), dict):
        document = document["variables"]
    if not isinstance(document, dict):
        raise ResultError(f"{path}: expected variables by name")
    return {str(k).lower(): plain_text(v) for k, v in document.items() if k != "version"}


def asked_variables(rendered_config: str) -> dict[str, str]:
    """The settings of a rendered config: names in lower case with underscores."""
    asked = {}
    for line in rendered_config.splitlines():
        text = line.strip()
        if text and text[0] not in "#;[!":
            name, equals, value = text.partition("=")
            asked[name.strip().lower().replace("-", "_")] = value.strip() if equals else "ON"
    return asked


def contract_rows(run: store.RunDirectory) -> tuple[list[Row], list[Row]]:
    """The checks of all hosts against their contracts, and every deviation found."""
    checks: list[Row] = []
    deviations: list[Row] = []
    for path in sorted((run.path / "hosts").glob("*/contract-*.json")):
        name = _CONTRACT.match(path.name)
        if name is None:
            raise ResultError(f"{path}: not named contract-<trial>-before.json or -after.json")
        document = store.read_versioned(path)
        key = {"host": path.parent.name, "trial": name["trial"], "moment": name["moment"]}
        found = document["deviations"]
        checks.append(
            {
                **key,
                "checked": ",".join(str(item) for item in document["checked"]),
                "deviations": len(found),
            }
        )
        deviations += [
            {
                **key,
                "item": str(d["item"]),
                "expected": plain_text(d["expected"]),
                "observed": plain_text(d["observed"]),
            }
            for d in found
        ]
    return checks, deviations
