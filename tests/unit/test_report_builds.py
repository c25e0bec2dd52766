"""The report tells what each server was made of."""

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic_run
from synthetic_run import Options

from fleetmark import store
from fleetmark.report.compose import compose
from fleetmark.report.document import Document, Listing, Section, Table
from fleetmark.tables.build import build, open_tables

STAMP = {
    "version": 1,
    "source": "archive",
    "archive_name": "mariadb_10.11.18.orig.tar.gz",
    "sha256": "ab" * 32,
    "commit": "",
    "compiler": "c++ 12.2.0",
    "flags": {"CMAKE_BUILD_TYPE": "RelWithDebInfo", "WITH_SSL": "system", "WITH_UNIT_TESTS": "OFF"},
    "user_flags": {"WITH_SSL": "system"},
    "engines": ["rocksdb"],
    "seconds": 2040.5,
    "installed_bytes": 508_000_000,
    "ccache": {"hits": 1, "misses": 1282},
}
PACKAGE = {
    "name": "mariadb-server-core",
    "version": "1:10.11.19-0+deb12u1",
    "architecture": "amd64",
}


def _with_facts(run: store.RunDirectory, facts: dict[str, Any]) -> Section:
    """The section on builds of a run whose trials told these facts."""
    for path in run.path.glob("trials/*/trial.json"):
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "build_facts": facts}))
    build(run)
    document: Document = compose(open_tables(run))
    return next(s for s in document.sections if s.title == "Builds")


@pytest.fixture
def run(tmp_path: Path) -> store.RunDirectory:
    return synthetic_run.write(tmp_path, Options(query_rates=(100,)))


def _lines(section: Section) -> dict[str, str]:
    table = section.blocks[0]
    assert isinstance(table, Table)
    return {line.label: line.cells[0].text for line in table.lines}


def test_a_compiled_build_shows_source_compiler_and_flags(run: store.RunDirectory) -> None:
    told = {"version_comment": "Source distribution", "version_source_revision": "abc"}
    section = _with_facts(
        run, {"binary": "/p/bin/x", "stamp": STAMP, "package": None, "told": told}
    )
    lines = _lines(section)
    assert lines["version"] == "10.11.14-MariaDB"
    assert lines["SHA-256 of the archive"] == "ab" * 32
    assert lines["compiler"] == "c++ 12.2.0"
    assert lines["engines asked for"] == "rocksdb"
    assert lines["time to build"] == "34 min 0 s"
    assert lines["comment"] == "Source distribution"
    assert "commit" not in lines
    listing = section.blocks[1]
    assert isinstance(listing, Listing)
    assert "-DWITH_SSL=system   (of the experiment)\n" in listing.text
    assert "-DWITH_UNIT_TESTS=OFF\n" in listing.text


def test_a_packaged_build_shows_its_package(run: store.RunDirectory) -> None:
    told = {"version_compile_machine": "x86_64"}
    facts = {"binary": "/usr/sbin/mariadbd", "stamp": None, "package": PACKAGE, "told": told}
    section = _with_facts(run, facts)
    lines = _lines(section)
    assert lines["package"] == "mariadb-server-core"
    assert lines["package version"] == "1:10.11.19-0+deb12u1"
    assert lines["compiled for"] == "x86_64"
    assert len(section.blocks) == 1, "no flags of ours"
