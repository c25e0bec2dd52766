"""The last part of the report: what was compared, on what, how, and the proof of it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from fleetmark import store
from fleetmark.analyse.summary import row_label
from fleetmark.analyse.tones import Tone
from fleetmark.report.context import Context, mean, text_or_missing
from fleetmark.report.document import (
    Block,
    Cell,
    Column,
    Line,
    Listing,
    Paragraph,
    Section,
    Table,
)
from fleetmark.report.figures import number, size, whole
from fleetmark.tables.schema import Row

_CORNER = "target.build.config"

_PLACES = (
    "aria_log_dir_path", "basedir", "bind_address", "datadir", "general_log_file", "hostname",
    "init_file", "innodb_data_home_dir", "innodb_log_group_home_dir", "innodb_undo_directory",
    "last_insert_id", "log_bin_basename", "log_bin_index", "log_error", "pid_file", "plugin_dir",
    "port", "pseudo_thread_id", "rand_seed1", "rand_seed2", "relay_log", "server_id",
    "server_uuid", "slow_query_log_file", "socket", "timestamp", "tmpdir", "uuid_short",
)  # fmt: skip
"""Variables that differ between instances by their nature."""

_FACTS_SHOWN = (
    "os", "kernel", "architecture", "virtualization", "cpu.model", "cpu.logical", "cpu.cores",
    "cpu.sockets", "cpu.threads_per_core", "cpu.numa_nodes", "cpu.smt_active", "cpu.governor",
    "cpu.driver", "cpu.boost", "cpu.microcode", "memory_bytes", "swap_bytes", "swappiness",
    "transparent_hugepages", "clocksource", "data.filesystem", "data.device",
    "data.mount_options", "data.scheduler", "tools.sysbench", "tools.mariadbd", "tools.mysqld",
    "tools.fio", "python", "agent",
)  # fmt: skip
_LONGEST_LIST = 400


def sections(context: Context) -> list[Section]:
    """All parts that say where the numbers come from."""
    found = [
        Section("size", "Database size", 2, (_size(context),)),
        Section("configuration", "Configuration in effect", 2, tuple(_configuration(context))),
        Section("hosts", "Hosts", 2, tuple(_hosts(context))),
        Section("contract", "Contract", 2, (_contract(context),)),
        Section("taints", "Taints", 2, (_taints(context),)),
        Section("how", "How it was run", 2, tuple(_how(context))),
        Section("files", "Files and checksums", 2, tuple(_files(context))),
        Section("versions", "Versions", 2, (_versions(context),)),
    ]
    return [section for section in found if section.blocks]


def _size(context: Context) -> Block:
    lines = []
    trials = context.tables.rows("trials")
    peaks = _largest_rss(context)
    for label in context.labels:
        own = [t for t in trials if row_label(t) == label]
        lines.append(
            Line(
                label,
                (
                    Cell(size(mean([t["database_bytes"] for t in own]))),
                    Cell(size(mean([t["data_bytes"] for t in own]))),
                    Cell(size(peaks.get(label))),
                    Cell(number(mean([t["start_seconds"] for t in own]))),
                    Cell(number(mean([t["stop_seconds"] for t in own]))),
                    Cell(
                        "yes" if own and all(t["stopped_clean"] for t in own) else "no",
                        Tone.NONE if own and all(t["stopped_clean"] for t in own) else Tone.LOWER,
                    ),
                ),
                context.colour(label),
            )
        )
    return Table(
        "database-size",
        "Size at the end of a trial",
        _CORNER,
        (
            Column("database"),
            Column("data directory"),
            Column("server memory, largest"),
            Column("start", "s"),
            Column("stop", "s"),
            Column("stopped cleanly", numeric=False),
        ),
        tuple(lines),
    )


def _largest_rss(context: Context) -> dict[str, int]:
    peaks: dict[str, int] = {}
    for row in context.tables.rows("counters"):
        if row["server_rss_bytes"]:
            label = row_label(row)
            peaks[label] = max(peaks.get(label, 0), row["server_rss_bytes"])
    return peaks


def _configuration(context: Context) -> list[Block]:
    variables = context.tables.rows("variables")
    if not variables:
        return [Paragraph("No server of this run told its variables.")]
    by_name: dict[str, dict[str, Row]] = {}
    for row in variables:
        by_name.setdefault(row["variable"], {}).setdefault(row_label(row), row)
    asked = [n for n, rows in by_name.items() if any(r["asked"] is not None for r in rows.values())]
    differ = [
        n for n, rows in by_name.items() if _differs(rows) and n not in _PLACES and n not in asked
    ]
    blocks: list[Block] = [
        _variables(context, by_name, sorted(asked), "asked", "Variables asked for, as in effect"),
    ]
    if differ:
        caption = "Other variables that differ between rows"
        blocks.append(_variables(context, by_name, sorted(differ), "differing", caption))
    else:
        blocks.append(Paragraph("No other variable differs between rows, but paths and ports."))
    blocks.append(
        Paragraph(
            f"The server told {len(by_name)} variables; all are in the table variables"
            " (fleetmark results sql, fleetmark results export)."
        )
    )
    for trial in context.tables.rows("trials"):
        if trial["repeat"] == 1 and trial["rendered_config"]:
            title = f"{row_label(trial)}: config as given to the server"
            blocks.append(Listing(title, trial["rendered_config"]))
    return blocks


def _differs(rows: dict[str, Row]) -> bool:
    """Whether a variable differs by more than the trial's own directory in its value."""
    values = {(r["effective"] or "").replace(r["trial"], "") for r in rows.values()}
    return len(values) > 1


def _variables(
    context: Context,
    by_name: dict[str, dict[str, Row]],
    names: Sequence[str],
    table_id: str,
    caption: str,
) -> Table:
    lines = []
    for name in names:
        rows = by_name[name]
        values = {r["effective"] for r in rows.values()}
        line = []
        for label in context.labels:
            row = rows.get(label)
            marks: tuple[int, ...] = ()
            if row and row["mismatch"]:
                text = f"{label}: {name} was asked as {row['asked']}, the server made it"
                marks = (context.notebook.mark(f"{text} {row['effective']}"),)
            tone = Tone.HIGHER if len(values) > 1 else Tone.NONE
            line.append(Cell(text_or_missing(row["effective"] if row else None), tone, marks))
        lines.append(Line(name, tuple(line)))
    columns = tuple(Column(label, numeric=False) for label in context.labels)
    note = "Blue: not the same in all rows." if any(len(r) > 1 for r in by_name.values()) else ""
    return Table(f"variables-{table_id}", caption, "variable", columns, tuple(lines), note)


def _hosts(context: Context) -> list[Block]:
    facts = context.tables.rows("facts")
    if not facts:
        return [Paragraph("No host told its facts.")]
    by_host: dict[str, dict[str, str | None]] = {}
    for row in facts:
        by_host.setdefault(row["host"], {})[row["fact"]] = row["value"]
    every = list(dict.fromkeys(row["fact"] for row in facts))
    shown = [f for f in _FACTS_SHOWN if f in every]
    rest = [f for f in every if f not in shown and f != "version"]
    return [
        _fact_table("facts", "What the hosts are", by_host, shown, False),
        _fact_table("facts-all", "All other facts", by_host, rest, True),
    ]


def _fact_table(
    table_id: str,
    caption: str,
    by_host: dict[str, dict[str, str | None]],
    names: Sequence[str],
    folded: bool,
) -> Table:
    lines = []
    for name in names:
        values = [facts.get(name) for facts in by_host.values()]
        tone = Tone.LOWER if len(set(values)) > 1 and not folded else Tone.NONE
        render: Callable[[str | None], str] = text_or_missing
        if name.endswith("_bytes"):
            render = _size_text
        lines.append(Line(name, tuple(Cell(render(v), tone) for v in values)))
    columns = tuple(Column(host, numeric=False) for host in by_host)
    told = "Yellow: not the same on all hosts. The sign – means that the host does not tell."
    note = "" if folded else told
    return Table(table_id, caption, "fact", columns, tuple(lines), note, folded)


def _size_text(value: str | None) -> str:
    return size(float(value)) if value else text_or_missing(value)


def _contract(context: Context) -> Block:
    checks = context.tables.rows("contracts")
    deviations = context.tables.rows("deviations")
    if not checks:
        return Paragraph("No host was checked against a contract.")
    items = {item for check in checks for item in check["checked"].split(",") if item}
    hosts = {check["host"] for check in checks}
    if not items:
        return Paragraph(
            "The experiment declares no contract, so the hosts were checked for nothing; what"
            " they are stands in the section above."
        )
    if not deviations:
        return Paragraph(
            f"{len(checks)} checks on {len(hosts)} hosts, before and after every trial:"
            f" no deviation. Checked: {', '.join(sorted(items))}."
        )
    lines = tuple(
        Line(
            d["host"],
            tuple(
                Cell(text_or_missing(d[k]), Tone.LOWER if k == "observed" else Tone.NONE)
                for k in ("trial", "moment", "item", "expected", "observed")
            ),
        )
        for d in deviations
    )
    headings = ("trial", "moment", "item", "expected", "observed")
    return Table(
        "deviations",
        f"{len(deviations)} deviations from the contract in {len(checks)} checks",
        "host",
        tuple(Column(h, numeric=False) for h in headings),
        lines,
    )


def _taints(context: Context) -> Block:
    taints = context.tables.rows("taints")
    if not taints:
        return Paragraph("No result of this run is tainted.")
    lines = tuple(
        Line(
            row_label(t),
            (
                Cell(str(t["repeat"])),
                Cell(t["step"] or "all steps"),
                Cell(t["kind"], Tone.LOWER),
                Cell(t["text"]),
            ),
        )
        for t in taints
    )
    return Table(
        "taint-list",
        "Reasons not to trust a result",
        _CORNER,
        (
            Column("repeat"),
            Column("step", numeric=False),
            Column("taint", numeric=False),
            Column("what was seen", numeric=False),
        ),
        lines,
    )


def _how(context: Context) -> list[Block]:
    blocks: list[Block] = []
    seen = set()
    for trial in context.plan_document.get("trials", []):
        if trial["workload"] not in seen:
            seen.add(trial["workload"])
            blocks.append(_planned_steps(trial))
    trials = context.tables.rows("trials")
    order = ", ".join(f"{row_label(t)} r{t['repeat']} ({t['state']})" for t in trials)
    blocks.append(Paragraph(f"{len(trials)} trials, by target in this order: {order}."))
    path = context.tables.run.experiment_yaml
    if path.is_file():
        blocks.append(Listing("experiment.yaml as it was run", path.read_text()))
    return blocks


def _planned_steps(trial: dict[str, Any]) -> Table:
    lines = []
    for step in trial["steps"]:
        loads = step["loads"]
        options = loads[0]["options"] if loads else {}
        rate = (step.get("sla") or {}).get("rate_per_second")
        lines.append(
            Line(
                step["name"],
                (
                    Cell(_streams(loads) if loads else "settle"),
                    Cell(whole(len(loads))),
                    Cell(whole(_rows_planned(loads))),
                    Cell(whole(options.get("rows_per_commit"))),
                    Cell(number(rate)),
                    Cell(text_or_missing(loads[0]["pacing"] if loads else None)),
                    Cell(text_or_missing(options.get("seed"))),
                ),
            )
        )
    return Table(
        f"plan-{trial['workload']}",
        f"Steps of {trial['workload']}",
        "step",
        (
            Column("streams (threads)", numeric=False),
            Column("load hosts"),
            Column("rows to insert"),
            Column("rows a commit"),
            Column("insert rate", "rows/s"),
            Column("pacing", numeric=False),
            Column("seed"),
        ),
        tuple(lines),
    )


def _streams(loads: Sequence[dict[str, Any]]) -> str:
    threads: dict[str, int] = {}
    for load in loads:
        for stream in load["streams"]:
            threads[stream["name"]] = threads.get(stream["name"], 0) + stream["threads"]
    return ", ".join(f"{name} ({n})" for name, n in threads.items())


def _rows_planned(loads: Sequence[dict[str, Any]]) -> float | None:
    counted = [
        load["options"]["rows_per_client"] * stream["threads"]
        for load in loads
        for stream in load["streams"]
        if stream["role"] == "insert" and "rows_per_client" in load["options"]
    ]
    return sum(counted) if counted else None


def _files(context: Context) -> list[Block]:
    run = context.tables.run
    sums = run.path / store.SUMS_NAME
    if not sums.is_file():
        return [Paragraph("This run has no checksums yet: it has not ended, or was cut off.")]
    entries = [line.partition("  ")[::2] for line in sums.read_text().splitlines()]
    text = (
        f"{len(entries)} files of evidence are listed in {store.SUMS_NAME}, whose own SHA-256 is"
        f" {store.sha256_of(sums)}. Check them with fleetmark results verify {run.run_id}, or with"
        f" sha256sum -c {store.SUMS_NAME}."
    )
    lines = []
    for digest, name in entries[:_LONGEST_LIST]:
        path = run.path / name
        found = size(path.stat().st_size) if path.is_file() else "missing"
        lines.append(Line(name, (Cell(found), Cell(digest))))
    left_out = len(entries) - len(lines)
    note = f"{left_out} more in {store.SUMS_NAME}." if left_out else ""
    columns = (Column("size"), Column("SHA-256", numeric=False))
    return [
        Paragraph(text),
        Table("file-list", "Files", "file", columns, tuple(lines), note, folded=True),
    ]


def _versions(context: Context) -> Block:
    run = context.run_document
    versions: dict[str, str] = {
        "fleetmark": text_or_missing(run.get("fleetmark")),
        "Python of the controller": text_or_missing(run.get("python")),
    }
    for build in dict.fromkeys(t["build"] for t in context.tables.rows("trials")):
        own = [t for t in context.tables.rows("trials") if t["build"] == build]
        told = dict.fromkeys(str(t["dbms_version"]) for t in own if t["dbms_version"])
        versions[f"build {build}"] = text_or_missing(", ".join(told))
    for name, value in (run.get("packages") or {}).items():
        versions[name] = str(value)
    command = run.get("command")
    if command:
        versions["command"] = command if isinstance(command, str) else " ".join(command)
    if run.get("controller"):
        controller = run["controller"]
        versions["controller"] = (
            controller if isinstance(controller, str) else json.dumps(controller)
        )
    return Table(
        "version-list",
        "What produced these numbers",
        "what",
        (Column("version", numeric=False),),
        tuple(Line(name, (Cell(value),)) for name, value in versions.items()),
    )
