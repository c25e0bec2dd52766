"""Whole servers compiled from source: only where that is asked for."""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip with a word unless `make build-test` runs them."""
    if "FLEETMARK_BUILD_TEST" in os.environ:
        return
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.skip(reason="takes an hour or more: make build-test"))
