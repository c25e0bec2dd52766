"""The last part of the report: where the numbers come from, and the proof of it."""

import json

from fleetmark import store
from fleetmark.analyse.summary import row_label
from fleetmark.analyse.tones import Tone
from fleetmark.report import builds, setting
from fleetmark.report.context import Context, mean, text_or_missing
from fleetmark.report.document import (
    Block,
    Cell,
    Column,
    Line,
    Paragraph,
    Section,
    Table,
)
from fleetmark.report.figures import number, size

_CORNER = "target.build.config"

_LONGEST_LIST = 400


def sections(context: Context) -> list[Section]:
    """All parts that say where the numbers come from."""
    found = [
        Section("size", "Database size", 2, (_size(context),)),
        Section("builds", "Builds", 2, tuple(builds.blocks(context))),
        Section(
            "configuration", "Configuration in effect", 2, tuple(setting.configuration(context))
        ),
        Section("hosts", "Hosts", 2, tuple(setting.hosts(context))),
        Section("contract", "Contract", 2, (_contract(context),)),
        Section("taints", "Taints", 2, (_taints(context),)),
        Section("how", "How it was run", 2, tuple(setting.how(context))),
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
