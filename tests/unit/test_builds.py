"""Builds of an experiment, and the words of a build's log."""

import sys
from pathlib import Path
from typing import Any

import pytest

from fleetmark import builds, experiment, plan
from fleetmark.errors import ConfigError
from fleetmark.experiment import Build
from fleetmark.inventory import Fleet, Host

sys.path.insert(0, str(Path(__file__).parents[2] / "roles" / "dbms_build" / "files" / "build"))
import build_log

SHA256 = "ab" * 32
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ARCHIVE = {"source": "archive", "version": "10.11.18", "archive": "https://h/a.tar.gz"}
FLEET = Fleet(
    "inv.yml",
    {"db1": Host("db1", "192.0.2.1"), "load1": Host("load1", "192.0.2.2")},
    {"db": ["db1"], "load": ["load1"]},
)

EXPERIMENT = """\
fleetmark: 1
name: t
builds:
  - name: b
{build}
configs:
  - name: base
workloads:
  - insert_benchmark: {{profile: tiny, engine: {engine}}}
"""


def load(tmp_path: Path, build: dict[str, Any], engine: str = "innodb") -> experiment.Experiment:
    lines = "\n".join(f"    {key}: {value}" for key, value in build.items())
    path = tmp_path / "e.yaml"
    path.write_text(EXPERIMENT.format(build=lines, engine=engine))
    return experiment.load(path).experiment


def refused(tmp_path: Path, build: dict[str, Any], engine: str = "innodb") -> str:
    with pytest.raises(ConfigError) as caught:
        plan.make_plan(load(tmp_path, build, engine), FLEET, tmp_path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (ARCHIVE, "source: archive needs sha256: what sha256sum prints"),
        ({**ARCHIVE, "sha256": SHA256[:-1]}, "in small letters, this has 63 characters"),
        ({**ARCHIVE, "sha256": SHA256.upper()}, "sha256 is 64 hexadecimal"),
        ({**ARCHIVE, "sha256": SHA256, "version": "latest"}, "version"),
        ({"source": "archive", "sha256": SHA256, "version": "1.2.3"}, "needs archive"),
        ({"source": "git", "version": "11.4.3", "repository": "https://h/r"}, "needs commit: all"),
        (
            {"source": "git", "version": "11.4.3", "repository": "https://h/r", "commit": "abc123"},
            "commit is 40 hexadecimal digits in small letters, this has 6 characters",
        ),
        ({"source": "debian_source", "version": "10.11.18", "sha256": SHA256}, "needs package"),
        ({"source": "package", "sha256": SHA256}, "sha256 does not go with source: package"),
        ({"source": "prefix"}, "source: prefix needs basedir"),
        ({**ARCHIVE, "sha256": SHA256, "flags": "{WITH SSL: system}"}, "WITH SSL"),
        ({**ARCHIVE, "sha256": SHA256, "archive": "gone.tar.gz"}, "there is no file"),
    ],
)
def test_a_mistake_in_a_build_is_named(tmp_path: Path, build: dict[str, Any], words: str) -> None:
    assert words in refused(tmp_path, build)


@pytest.mark.parametrize(
    ("build", "engine", "words"),
    [
        ({**ARCHIVE, "sha256": SHA256}, "rocksdb", "is compiled without rocksdb, which workload"),
        (
            {**ARCHIVE, "sha256": SHA256, "engines": "[tokudb]"},
            "innodb",
            "mariadb has no tokudb from 10.6 on, this is 10.11.18",
        ),
        (
            {**ARCHIVE, "sha256": SHA256, "flavour": "mysql", "engines": "[rocksdb]"},
            "innodb",
            "mysql has no engine rocksdb",
        ),
        (
            {**ARCHIVE, "version": "10.1.48", "sha256": SHA256, "engines": "[rocksdb]"},
            "innodb",
            "mariadb has rocksdb from 10.2 on",
        ),
    ],
)
def test_an_engine_that_a_build_lacks_is_named_early(
    tmp_path: Path, build: dict[str, Any], engine: str, words: str
) -> None:
    assert words in refused(tmp_path, build, engine)


def test_an_engine_that_was_asked_for_is_fine(tmp_path: Path) -> None:
    build = {**ARCHIVE, "sha256": SHA256, "engines": "[rocksdb]"}
    made = plan.make_plan(load(tmp_path, build, "rocksdb"), FLEET, tmp_path)
    assert plan.engines(made.trials[0]) == {"rocksdb"}


def test_a_local_archive_begins_where_the_experiment_is(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"x")
    build = {**ARCHIVE, "sha256": SHA256, "archive": "a.tar.gz"}
    made = plan.make_plan(load(tmp_path, build), FLEET, tmp_path)
    assert made.builds[0].archive == str(tmp_path / "a.tar.gz")
    again = Build.model_validate(plan.to_json(made)["builds"][0])
    assert again == made.builds[0], "a plan can be read back"


def make(**values: Any) -> Build:
    return Build.model_validate({"name": "b", **ARCHIVE, "sha256": SHA256, **values})


def test_the_record_is_of_what_is_built_and_not_of_where_it_came_from() -> None:
    first = builds.record_name(make())
    assert first == builds.record_name(make(name="other", archive="https://elsewhere/a.tar.gz"))
    assert first == builds.record_name(make(jobs=3, build_on="first"))
    others = [
        make(sha256="cd" * 32),
        make(flags={"WITH_SSL": "bundled"}),
        make(engines=["rocksdb"]),
        make(version="10.11.19"),
        make(flavour="mysql"),
    ]
    assert len({first, *map(builds.record_name, others)}) == 6
    path = builds.record_path(make(), "/var/lib/fleetmark")
    assert path == f"/var/lib/fleetmark/builds/records/{first}.json"


def test_the_role_gets_flags_as_cmake_takes_them() -> None:
    variables = builds.role_variables(make(flags={"WITH_X": True, "A": False, "N": 3}))
    assert variables["flags"] == {"WITH_X": "ON", "A": "OFF", "N": "3"}
    assert variables["source"] == "archive"


def test_a_packaged_engine_has_its_package() -> None:
    build = Build.model_validate({"name": "b", "engines": ["rocksdb"]})
    assert builds.engine_packages(build) == ["mariadb-plugin-rocksdb"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[12/1283] Building C object a.o\n", (12, 1283)),
        ("[ 42%] Building CXX object b.o\n", (42, 100)),
        ("a.cc:3:1: error: no", None),
        ("[warning] not a step", None),
    ],
)
def test_progress_of_ninja_and_make(line: str, expected: tuple[int, int] | None) -> None:
    found = build_log.progress(line)
    assert (found and (found.done, found.total)) == expected


NINJA = """\
[1/3] Building CXX object a.o
a.cc:1:2: warning: unused
[2/3] Building CXX object b.o
FAILED: b.o
c++ -c /w/source/sql/b.cc
In file included from /w/source/sql/b.cc:1:
/w/source/sql/h.h:7:10: fatal error: fmt/core.h: No such file or directory
    7 | #include <fmt/core.h>
compilation terminated.
[3/3] Building CXX object c.o
FAILED: c.o
/w/source/sql/c.cc:9:1: error: later
ninja: build stopped: subcommand failed.
"""


def test_the_first_error_of_a_compile_with_its_lines() -> None:
    failure = build_log.explain("compile", NINJA, "/w/source", 2)
    assert failure.message == (
        "compile failed: sql/h.h:7:10: fatal error: fmt/core.h: No such file or directory"
    )
    assert failure.evidence.splitlines()[-1] == "compilation terminated."
    assert "later" not in failure.evidence
    assert not failure.unexplained


@pytest.mark.parametrize(
    ("log", "message", "evidence"),
    [
        (
            "a.cc: x\nc++: fatal error: Killed signal terminated program cc1plus\n",
            "a compiler was killed, most likely because memory ran out (8 jobs)",
            "c++: fatal error: Killed signal terminated program cc1plus",
        ),
        (
            "/tmp/x.s: Error\nas: b.o: error writing: No space left on device\n",
            "the disk is full",
            "as: b.o: error writing: No space left on device",
        ),
        (
            "[4/9] Performing download step (download, verify and extract) for 'libfmt'\n",
            "the source tried to download something while it did the stage `compile`, and a build"
            " must not",
            "[4/9] Performing download step (download, verify and extract) for 'libfmt'",
        ),
    ],
)
def test_causes_outside_the_source_come_first(log: str, message: str, evidence: str) -> None:
    failure = build_log.explain("compile", log, "/w/source", 8)
    assert (failure.message, failure.evidence) == (message, evidence)


def test_a_linker_and_cmake_are_understood_too() -> None:
    linker = "[9/9] Linking x\nFAILED: x\n/usr/bin/ld: a.o: undefined reference to `f'\n"
    assert "undefined reference to `f'" in build_log.explain("compile", linker, "/w", 1).message
    cmake = "-- ok\nCMake Error at CMakeLists.txt:5 (find_package):\n  Could NOT find X\n"
    failure = build_log.explain("configure", cmake, "/w", 1)
    assert failure.message == "configure failed: CMake Error at CMakeLists.txt:5 (find_package):"
    assert "Could NOT find X" in failure.evidence


def test_a_log_without_a_reason_is_known_as_such() -> None:
    silent = "[1/2] Building a.o\nFAILED: a.o\nccache c++ -c a.cc\nninja: build stopped.\n"
    assert build_log.explain("compile", silent, "/w", 1).unexplained


def test_flags_that_cmake_did_not_use() -> None:
    log = (
        "CMake Warning:\n  Manually-specified variables were not used by the project:\n\n"
        "    WITH_SLS\n    PLUGIN_X\n\n\n-- Build files have been written to: /w/build\n"
    )
    assert build_log.unused_flags(log) == ["WITH_SLS", "PLUGIN_X"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(41.9, "41 s"), (185.0, "3 min 05 s"), (3720.0, "1 h 02 min")]
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert build_log.duration(seconds) == text
