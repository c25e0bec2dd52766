"""The life of an instance: a real MariaDB, fresh for each trial, with the config that was asked."""

import os
import re
import shutil
import signal
import socket
import stat
from pathlib import Path

import pymysql
import pytest
from agent_host import PASSWORD, PORTS, AgentHost, command_lines, running
from waiting import wait_for

from fleetmark_agent.dbms_status import connect
from fleetmark_agent.job import Connection

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(
        shutil.which("mariadbd", path=os.environ.get("PATH", "") + ":/usr/sbin") is None,
        reason="mariadbd is not installed",
    ),
]
PORT = PORTS[20]


def start(host: AgentHost, trial: str, config: str = "", code: int = 0, **more):
    return host.call(
        "dbms-start", str(host.put_dbms(host.dbms(trial, PORT, config, **more))), code=code
    )


def stop(host: AgentHost, trial: str):
    return host.call("dbms-stop", "--run", host.run, "--trial", trial)


def query(answer, sql: str, user: str = "fleetmark", password: str = PASSWORD):
    target = Connection("localhost", answer["port"], user, "fleetmark", answer["socket"])
    connection = connect(target, password)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()
    finally:
        connection.close()


def test_each_trial_has_data_of_its_own(host):
    first = start(host, "t1", expected_variables={"innodb_buffer_pool_size": "64M"})
    assert first["mismatches"] == []
    assert first["variables"]["innodb_buffer_pool_size"] == str(64 << 20)
    assert first["data_dir"] == str(host.data / host.run / "t1")
    query(first, "CREATE TABLE fleetmark.left_behind (a INT)")
    (status,) = host.call("status")["dbms"]
    assert (status["running"], status["pid"], status["port"]) == (True, first["pid"], PORT)

    ended = stop(host, "t1")
    assert ended["clean"] is True
    assert "Shutdown complete" in ended["error_log_tail"]
    assert ended["data_bytes"] > ended["database_bytes"] > 0
    assert ended["data_bytes"] > 32 << 20
    assert not Path(first["data_dir"]).exists()
    assert not running(first["pid"])

    second = start(host, "t2")
    assert second["port"] == PORT
    assert query(second, "SHOW TABLES FROM fleetmark") == ()
    stop(host, "t2")


def test_sizes_are_those_of_du(host):
    answer = start(host, "t1")
    query(answer, "CREATE TABLE fleetmark.t (a INT PRIMARY KEY, b LONGBLOB)")
    query(answer, "INSERT INTO fleetmark.t VALUES (1, REPEAT('x', 8000000))")
    ended = stop(host, "t1")
    assert 8_000_000 < ended["database_bytes"] < 24_000_000


def test_who_may_connect(host):
    answer = start(host, "t1")
    users = query(answer, "SELECT User, Host FROM mysql.global_priv WHERE User <> 'mariadb.sys'")
    assert {user for user, _ in users} == {"fleetmark", "root"}
    assert {place for user, place in users if user == "fleetmark"} == {"%", "localhost"}
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        # Through the socket, root of the system may; over the network nobody is root.
        pymysql.connect(host="127.0.0.1", port=PORT, user="root", password="")
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        query(answer, "SELECT 1", password="wrong")
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        query(answer, "SELECT 1", user="nobody", password="")
    over_network = pymysql.connect(
        host="127.0.0.1", port=PORT, user="fleetmark", password=PASSWORD, database="fleetmark"
    )
    over_network.close()
    stop(host, "t1")


def test_the_password_is_in_no_file_that_others_read(host):
    answer = start(host, "t1")
    assert PASSWORD not in command_lines()
    literal = PASSWORD.replace("\\", "\\\\").replace("'", "''")
    for path in host.top.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            holds = PASSWORD.encode() in data or literal.encode() in data
            assert not holds or stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert not (host.directory("dbms") / "init.sql").exists()
    for name in ("my.cnf", "secret.json"):
        assert stat.S_IMODE((host.directory("dbms") / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(answer["data_dir"]).stat().st_mode) == 0o700
    stop(host, "t1")
    assert not (host.directory("dbms") / "secret.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: the server runs as ourselves")
def test_root_runs_the_server_as_mysql(host):
    answer = start(host, "t1")
    assert answer["system_user"] == "mysql"
    assert os.stat(f"/proc/{answer['pid']}").st_uid == os.stat(answer["data_dir"]).st_uid != 0
    stop(host, "t1")


def test_the_limits_are_those_of_the_running_process(host):
    answer = start(host, "t1")
    said = Path(f"/proc/{answer['pid']}/limits").read_text()
    for name, key in (("Max open files", "open_files"), ("Max locked memory", "locked_bytes")):
        word = re.search(rf"{name}\s+(\S+)", said)[1]
        assert answer["limits"][key] == (None if word == "unlimited" else int(word))
    stop(host, "t1")


def test_what_the_server_changed_is_a_mismatch(host):
    asked = {"innodb_buffer_pool_size": "64M", "max_connections": "5", "plugin_maturity": "alpha"}
    answer = start(host, "t1", "max_connections=5\n", expected_variables=asked)
    assert answer["mismatches"] == [
        {"name": "max_connections", "asked": "5", "effective": "10"},
        {
            "name": "plugin_maturity",
            "asked": "alpha",
            "effective": answer["variables"]["plugin_maturity"],
        },
    ]
    stop(host, "t1")


def test_check_gives_the_servers_own_words(host):
    fine = host.put_dbms(host.dbms("t1", PORT, "loose_no_such_thing=1\nskip_log_bin\n"))
    assert host.call("dbms-check", str(fine))["version"][0].isdigit()
    unknown = host.put_dbms(host.dbms("t2", PORT, "innodb_bufer_pool_size=1G\n"))
    error = host.call("dbms-check", str(unknown), code=4)
    assert "unknown variable 'innodb_bufer_pool_size=1G'" in error["evidence"]
    value = host.put_dbms(host.dbms("t3", PORT, "innodb_flush_method=sometimes\n"))
    error = host.call("dbms-check", str(value), code=4)
    assert "sometimes" in error["evidence"]
    assert not host.data.exists()


def test_a_config_that_does_not_start_leaves_nothing(host):
    error = start(host, "t1", "innodb_bufer_pool_size=1G\n", code=4)
    assert error["kind"] == "workload"
    assert "unknown variable 'innodb_bufer_pool_size=1G'" in error["evidence"]
    assert not (host.data / host.run / "t1").exists()
    assert not (host.directory("dbms") / "init.sql").exists()
    assert not (host.directory("dbms") / "state.json").exists()


def test_a_port_in_use_is_found_before_anything_is_made(host):
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", PORT))
        other.listen()
        error = start(host, "t1", code=3)
    assert str(PORT) in error["message"]
    assert not host.data.exists()


def test_data_that_is_in_the_way_stays(host):
    precious = host.data / host.run / "t1" / "precious"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    error = start(host, "t1", code=3)
    assert "not empty" in error["message"]
    assert "precious" in error["evidence"]
    assert precious.read_text() == "mine"


def test_one_trial_starts_once(host):
    start(host, "t1")
    assert "already" in start(host, "t1", code=3)["message"]
    stop(host, "t1")
    assert (
        "no instance"
        in host.call("dbms-stop", "--run", host.run, "--trial", "t1", code=2)["message"]
    )


def test_a_server_that_crashed_is_no_clean_stop(host):
    answer = start(host, "t1")
    os.kill(answer["pid"], signal.SIGKILL)
    wait_for(lambda: not running(answer["pid"]), "end of the server")
    ended = stop(host, "t1")
    assert ended["clean"] is False
    assert not Path(answer["data_dir"]).exists()


def test_a_server_that_does_not_stop_is_killed_past_the_limit(host):
    answer = start(host, "t1", stop_timeout_seconds=0.3)
    os.kill(answer["pid"], signal.SIGSTOP)
    ended = stop(host, "t1")
    assert ended["clean"] is False
    assert not running(answer["pid"])


def test_clean_removes_an_instance_that_nobody_stopped(host):
    answer = start(host, "t1")
    assert host.call("clean", "--run", host.run) == {"stopped": ["t1"], "removed": True}
    assert not running(answer["pid"])
    assert not Path(answer["data_dir"]).exists()


def test_a_recycled_pid_is_never_killed(host):
    answer = start(host, "t1")
    pid_file = host.directory("dbms") / "pid"
    text = pid_file.read_text()
    pid_file.write_text(f'{{"pid": {os.getpid()}, "start_ticks": 1}}')
    assert host.call("clean", "--run", host.run, "--keep-files")["stopped"] == []
    assert running(answer["pid"])
    pid_file.write_text(text)
    os.kill(answer["pid"], signal.SIGKILL)
    wait_for(lambda: not running(answer["pid"]), "end of the server")
