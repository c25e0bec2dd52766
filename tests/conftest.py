"""Fixtures that several parts share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from mariadb_server import Server, find_server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A running MariaDB with user and database; tests leave it as they found it."""
    if find_server() is None:
        pytest.skip("mariadbd is not installed")
    # A socket's path must stay short, so not below pytest's own directories.
    with tempfile.TemporaryDirectory(prefix="fm-db-") as directory:
        server = Server(Path(directory)).create()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def database(mariadb: Server) -> Iterator[Server]:
    """The running MariaDB with an empty database."""
    mariadb.drop_tables()
    yield mariadb
    mariadb.drop_tables()
