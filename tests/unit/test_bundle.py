"""The agent's zipapp: reproducible, complete, and fit for Python 3.9."""

import importlib.metadata
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from fleetmark import bundle
from fleetmark.errors import InfrastructureError
from fleetmark.store import sha256_of


def test_two_builds_are_the_same_bytes_whatever_the_times_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bundle.build(tmp_path / "a" / "agent.pyz")
    package = Path(importlib.util.find_spec("fleetmark_agent").submodule_search_locations[0])
    copy = tmp_path / "elsewhere" / "fleetmark_agent"
    shutil.copytree(package, copy)
    (copy / "__pycache__").mkdir(exist_ok=True)
    (copy / "__pycache__" / "stale.cpython-39.pyc").write_bytes(b"x")
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
    monkeypatch.syspath_prepend(str(copy.parent))
    second = bundle.build(tmp_path / "b" / "agent.pyz")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.sha256 == second.sha256 == sha256_of(first.path)


def test_it_holds_the_agent_its_data_its_dependencies_and_their_licences(tmp_path: Path) -> None:
    built = bundle.build(tmp_path / "agent.pyz")
    names = zipfile.ZipFile(built.path).namelist()
    assert names == sorted(names)
    package = Path(importlib.util.find_spec("fleetmark_agent").submodule_search_locations[0])
    data = {f"fleetmark_agent/{p.relative_to(package)}" for p in package.rglob("*.lua")}
    assert data <= set(names)
    assert {
        "__main__.py",
        "fleetmark_agent/job.py",
        "pymysql/connections.py",
        "prometheus_client/exposition.py",
        "licenses/PyMySQL/LICENSE",
        "licenses/prometheus-client/LICENSE",
    } <= set(names)
    assert not [n for n in names if "__pycache__" in n or n.endswith((".pyc", ".so", "/"))]
    assert not [n for n in names if n.startswith(("prometheus_client/django", "fleetmark/"))]
    assert stat.S_IMODE(built.path.stat().st_mode) == 0o755


def test_everything_inside_imports_from_the_file_alone(tmp_path: Path) -> None:
    built = bundle.build(tmp_path / "agent.pyz")
    program = (
        "import sys; sys.path[:0] = [sys.argv[1]]\n"
        "import fleetmark_agent.job, fleetmark_agent.journal, fleetmark_agent.shm\n"
        "import pymysql, prometheus_client, prometheus_client.openmetrics.exposition\n"
        "from prometheus_client import CollectorRegistry, Gauge, generate_latest\n"
        "registry = CollectorRegistry(); Gauge('x', 'y', registry=registry).set(3)\n"
        "assert b'x 3.0' in generate_latest(registry)\n"
        "print(fleetmark_agent.__file__, pymysql.__file__, prometheus_client.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(built.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(str(built.path)) == 3


@pytest.mark.parametrize("distribution", sorted(bundle.DEPENDENCIES))
def test_dependencies_are_pure_python_and_allow_3_9(distribution: str) -> None:
    found = importlib.metadata.distribution(distribution)
    wheel = found.read_text("WHEEL")
    assert wheel is not None
    assert "Tag: py3-none-any" in wheel.splitlines()
    assert not [f for f in found.files or [] if f.suffix in {".so", ".pyd"}]
    assert SpecifierSet(found.metadata["Requires-Python"]).contains("3.9.0")
    needed = [r for r in found.requires or [] if "extra ==" not in r]
    assert needed == [], "a dependency of a dependency would be missing on the hosts"


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bundle.DEPENDENCIES, "no-such", "no_such_package")
    with pytest.raises(InfrastructureError, match="no_such_package is not installed"):
        bundle.build(tmp_path / "agent.pyz")
    assert not (tmp_path / "agent.pyz").exists()
