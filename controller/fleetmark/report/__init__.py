"""Reports: the tables of a run -> report.html and report.md."""

from pathlib import Path

from fleetmark import store
from fleetmark.tables.build import open_tables

__all__ = ["write"]


def write(run: store.RunDirectory) -> list[Path]:
    """Write report.html and report.md into the run directory, tables built first if needed.

    Returns the two paths, HTML first. Raises ResultError on damaged files.
    """
    # The charts' library takes longer to import than most verbs to run.
    from fleetmark.report import html, markdown  # noqa: PLC0415
    from fleetmark.report.compose import compose  # noqa: PLC0415

    document = compose(open_tables(run))
    written = []
    for name, text in (
        ("report.html", html.render(document)),
        ("report.md", markdown.render(document)),
    ):
        path = run.path / name
        store.write_atomic(path, text.encode())
        written.append(path)
    return written
