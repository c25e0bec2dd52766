"""What the servers of a run were made of: source, flags, compiler, package."""

from fleetmark.analyse.tones import Tone
from fleetmark.report.context import Context, text_or_missing
from fleetmark.report.document import Block, Cell, Column, Line, Listing, Table
from fleetmark.report.figures import duration, size

_SHOWN = {
    "version": "version",
    "package.name": "package",
    "package.version": "package version",
    "stamp.source": "source",
    "stamp.archive_name": "archive",
    "stamp.sha256": "SHA-256 of the archive",
    "stamp.repository": "repository",
    "stamp.commit": "commit",
    "stamp.compiler": "compiler",
    "stamp.cmake": "cmake",
    "stamp.flags.CMAKE_BUILD_TYPE": "build type",
    "stamp.engines": "engines asked for",
    "stamp.seconds": "time to build",
    "stamp.jobs": "jobs",
    "stamp.ccache.hits": "objects from ccache",
    "stamp.ccache.misses": "objects compiled",
    "stamp.installed_bytes": "installed size",
    "stamp.copied_from": "copied from",
    "told.version_comment": "comment",
    "told.version_compile_machine": "compiled for",
    "told.version_source_revision": "source revision",
    "told.version_ssl_library": "SSL library",
    "told.version_malloc_library": "allocator",
    "binary": "program",
}
_FLAGS = "stamp.flags."
_USER_FLAGS = "stamp.user_flags."


def blocks(context: Context) -> list[Block]:
    """The facts of all builds side by side, and the flags of those that we compiled."""
    facts: dict[str, dict[str, str | None]] = {}
    for row in context.tables.rows("builds"):
        facts.setdefault(_label(context, row["build"], row["host"]), {})[row["fact"]] = row["value"]
    if not facts:
        return []
    lines = []
    for fact, name in _SHOWN.items():
        values = [told.get(fact) for told in facts.values()]
        if any(values):
            tone = Tone.HIGHER if len(set(values)) > 1 else Tone.NONE
            lines.append(Line(name, tuple(Cell(_text(fact, value), tone) for value in values)))
    columns = tuple(Column(label, numeric=False) for label in facts)
    note = "Blue: not the same in all builds." if len(facts) > 1 else ""
    found: list[Block] = [
        Table("builds", "What the servers are made of", "fact", columns, tuple(lines), note)
    ]
    for label, told in facts.items():
        flags = _flags(told)
        if flags:
            found.append(Listing(f"{label}: flags given to cmake", flags))
    return found


def _label(context: Context, build: str, host: str) -> str:
    """The build; with its host where the run has several database hosts."""
    hosts = {row["host"] for row in context.tables.rows("builds")}
    return f"{build} on {host}" if len(hosts) > 1 else build


def _text(fact: str, value: str | None) -> str:
    if value and fact.endswith("_bytes"):
        return size(float(value))
    if value and fact.endswith(".seconds"):
        return duration(float(value))
    return text_or_missing(value)


def _flags(told: dict[str, str | None]) -> str:
    asked = {name for name in told if name.startswith(_USER_FLAGS)}
    return "".join(
        f"-D{name.removeprefix(_FLAGS)}={told[name] or ''}"
        f"{'   (of the experiment)' if name.replace(_FLAGS, _USER_FLAGS) in asked else ''}\n"
        for name in told
        if name.startswith(_FLAGS)
    )
