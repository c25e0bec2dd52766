"""Fixtures of the agent's tests."""

import shutil
from collections.abc import Iterator

import pytest
from agent_host import PASSWORD, PORTS, AgentHost, RunningDbms

from fleetmark_agent.dbms_status import connect


@pytest.fixture
def host() -> Iterator[AgentHost]:
    """A base directory of its own, cleaned after the test."""
    host = AgentHost()
    try:
        yield host
    finally:
        host.close()


@pytest.fixture(scope="session")
def shared_dbms() -> Iterator[RunningDbms]:
    """A MariaDB started by dbms-start, for jobs to work on."""
    for program in ("mariadbd", "sysbench"):
        if shutil.which(program, path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin") is None:
            pytest.skip(f"{program} is not installed")
    host = AgentHost("shared")
    try:
        wanted = host.dbms("t1", PORTS[0])
        yield RunningDbms(host, host.call("dbms-start", str(host.put_dbms(wanted))))
    finally:
        host.close()


@pytest.fixture
def dbms(shared_dbms: RunningDbms) -> RunningDbms:
    """The shared instance with an empty database."""
    connection = connect(shared_dbms.connection, PASSWORD)
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE fleetmark")
        cursor.execute("CREATE DATABASE fleetmark")
    connection.close()
    return shared_dbms
