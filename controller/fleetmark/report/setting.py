"""What was compared, on which hosts, and how it was run."""

from collections.abc import Callable, Sequence
from typing import Any

from fleetmark.analyse.summary import row_label
from fleetmark.analyse.tones import Tone
from fleetmark.report.context import Context, text_or_missing
from fleetmark.report.document import Block, Cell, Column, Line, Listing, Paragraph, Table
from fleetmark.report.figures import number, size, whole
from fleetmark.tables.schema import Row

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


def configuration(context: Context) -> list[Block]:
    """The variables asked for, those that differ, and the configs as given."""
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


def hosts(context: Context) -> list[Block]:
    """The facts of all hosts, side by side."""
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


def how(context: Context) -> list[Block]:
    """The steps as planned, the trials in their order, the experiment as written."""
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
