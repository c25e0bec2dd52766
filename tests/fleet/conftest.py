"""Fleets that the tests share."""

from collections.abc import Callable, Iterator

import pytest
from light_hosts import LightFleet, light_lab
from vm_hosts import VmFleet, ready_image, vm_lab_of


@pytest.fixture(scope="session")
def light_fleet() -> Iterator[LightFleet]:
    """One database host and two load hosts, up for the whole session."""
    with light_lab(1, 2) as fleet:
        yield fleet


@pytest.fixture
def new_light_lab() -> Iterator[Callable[[int, int], LightFleet]]:
    """Makes a lab of its own for one test, with the given numbers of db and load hosts."""
    managers = []

    def make(db: int, load: int) -> LightFleet:
        manager = light_lab(db, load)
        managers.append(manager)
        return manager.__enter__()

    yield make
    for manager in managers:
        manager.__exit__(None, None, None)


@pytest.fixture(scope="session")
def vm_image() -> None:
    """The root image of guests is in the cache."""
    ready_image()


@pytest.fixture(scope="session")
def vm_lab() -> Iterator[VmFleet]:
    """One guest, the database host db1, up for the whole session."""
    with vm_lab_of(1, 0) as fleet:
        yield fleet
