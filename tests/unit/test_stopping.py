"""A run is stopped from another process."""

import threading
from pathlib import Path

from fleetmark import conduct, store
from fleetmark.conduct import stopping
from fleetmark.ledger import Ledger, read


def begun(tmp_path: Path) -> store.RunDirectory:
    run = store.create(tmp_path)
    conduct.begin(run, "e", ["test"])
    conduct.set_state(run, "running")
    return run


def test_a_living_conductor_is_asked_and_waited_for(tmp_path: Path) -> None:
    run = begun(tmp_path)
    stop, up = threading.Event(), threading.Event()

    def conductor() -> None:
        book = Ledger(run.ledger)
        with stopping.obeying(run, stop):
            up.set()
            assert stop.wait(10)
        conduct.set_state(run, "partial", ["its own words"])
        book.close()

    thread = threading.Thread(target=conductor)
    thread.start()
    assert up.wait(10)
    stopping.end_conductor(run)
    thread.join(10)
    assert stop.is_set()
    document = store.read_json(run.run_json)
    assert (document["state"], document["partial_because"]) == ("partial", ["its own words"])
    assert not (run.path / stopping.REQUEST_NAME).exists()


def test_the_books_of_a_dead_conductor_are_closed(tmp_path: Path) -> None:
    run = begun(tmp_path)
    Ledger(run.ledger).close()
    stopping.end_conductor(run)
    assert store.read_json(run.run_json)["state"] == "interrupted"
    assert [e["event"] for e in read(run.ledger)] == ["interrupted", "run_ended"]
    assert store.verify_sums(run)[1] == []


def test_a_run_that_has_ended_is_left_as_it_is(tmp_path: Path) -> None:
    run = begun(tmp_path)
    conduct.set_state(run, "complete")
    before = run.run_json.read_bytes()
    stopping.end_conductor(run)
    assert run.run_json.read_bytes() == before
    assert read(run.ledger) == []
