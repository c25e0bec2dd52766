"""Builds as the agent sees them: their engines, their prefix, what they were made of."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from agent_host import PASSWORD, PORTS, AgentHost

from fleetmark_agent.dbms_status import connect
from fleetmark_agent.job import Connection

_PATH = os.environ.get("PATH", "") + ":/usr/sbin"
_SERVER = shutil.which("mariadbd", path=_PATH)
pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(_SERVER is None, reason="mariadbd is not installed"),
]
PORT = PORTS[21]
PLUGINS = Path("/usr/lib/mysql/plugin")


def test_a_missing_engine_is_said_by_the_check_and_by_the_start(host: AgentHost) -> None:
    path = str(host.put_dbms(host.dbms("t1", PORT, engines=["innodb", "tokudb"])))
    for verb in ("dbms-check", "dbms-start"):
        error = host.call(verb, path, code=4)
        assert error["message"] == "this build has no storage engine tokudb"
        assert error["evidence"].endswith("/ha_tokudb.so")
        assert error["next_step"].startswith("add to the build: engines: [tokudb]")
    assert not any(dbms["running"] for dbms in host.call("status")["dbms"])


@pytest.mark.skipif(
    not (PLUGINS / "ha_blackhole.so").exists(), reason="this mariadbd has no plugin of an engine"
)
def test_the_plugin_of_an_engine_is_loaded_for_the_load(host: AgentHost) -> None:
    wanted = host.dbms("t1", PORT, engines=["blackhole"])
    assert host.call("dbms-check", str(host.put_dbms(wanted)))["version"]
    answer = host.call("dbms-start", str(host.put_dbms(wanted)))
    connection = connect(
        Connection("localhost", PORT, "fleetmark", "fleetmark", answer["socket"]), PASSWORD
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE fleetmark.t (a INT) ENGINE=BLACKHOLE")
    assert answer["mismatches"] == []
    host.call("dbms-stop", "--run", host.run, "--trial", "t1")


@pytest.fixture
def prefix(host: AgentHost) -> Path:
    """The packaged server laid out below a prefix, as a compiled one is."""
    top = host.top / "prefix"
    assert _SERVER is not None
    # Debian's layout, which its mariadb-install-db looks for.
    for name in ("bin", "sbin", "lib"):
        (top / name).mkdir(parents=True)
    for program in ("mariadbd", "mariadb-install-db", "my_print_defaults", "resolveip"):
        found = shutil.which(program, path=_PATH)
        if found is None:
            pytest.skip(f"not installed: {program}")
        shutil.copy(found, top / ("sbin" if program == "mariadbd" else "bin") / program)
    shutil.copytree("/usr/share/mysql", top / "share" / "mysql", symlinks=True)
    (top / "lib" / "plugin").symlink_to(PLUGINS)
    return top


def test_a_build_below_a_prefix_is_started_and_told_by_its_stamp(
    host: AgentHost, prefix: Path
) -> None:
    stamp = {"version": 1, "flags": {"WITH_SSL": "system"}, "prefix": str(prefix)}
    (prefix / "fleetmark-build.json").write_text(json.dumps(stamp))
    wanted = host.dbms("t1", PORT, basedir=str(prefix))
    checked = host.call("dbms-check", str(host.put_dbms(wanted)))
    assert checked["binary"] == str(prefix / "sbin" / "mariadbd")
    answer = host.call("dbms-start", str(host.put_dbms(wanted)))
    assert answer["command"][0] == str(prefix / "sbin" / "mariadbd")
    assert answer["variables"]["basedir"].rstrip("/") == str(prefix)
    assert answer["build"]["stamp"] == stamp
    assert answer["build"]["package"] is None
    assert answer["build"]["told"]["version_compile_machine"] == os.uname().machine
    if os.geteuid() == 0:
        assert answer["system_user"] == "mysql", "it can get at its prefix"
    host.call("dbms-stop", "--run", host.run, "--trial", "t1")


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="not a Debian")
def test_a_packaged_build_is_told_by_its_package(host: AgentHost) -> None:
    answer = host.call("dbms-start", str(host.put_dbms(host.dbms("t1", PORT))))
    said = subprocess.run(
        ["dpkg-query", "--search", os.path.realpath(str(_SERVER))],
        capture_output=True,
        text=True,
        check=True,
    )
    package = answer["build"]["package"]
    assert package["name"] == said.stdout.partition(":")[0]
    assert answer["version"].partition("-")[0] in package["version"]
    assert answer["build"]["stamp"] is None
    host.call("dbms-stop", "--run", host.run, "--trial", "t1")
