"""Starting loads in tests."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import Running

from fleetmark_agent import sysbench
from fleetmark_agent.job import Load


@pytest.fixture
def start() -> Iterator[Callable[[Load], Running]]:
    """Start a load up to its barrier; what still runs at the end of the test is ended."""
    if sysbench.find() is None:
        pytest.skip("sysbench is not installed")
    directory = Path(tempfile.mkdtemp(prefix="fm-load-"))
    started: list[Running] = []

    def run(load: Load) -> Running:
        started.append(Running(load, directory / str(len(started))))
        return started[-1].wait_ready()

    yield run
    for running in started:
        running.kill()
    shutil.rmtree(directory)
