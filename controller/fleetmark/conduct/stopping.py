"""Ask the process that conducts a run to stop, from another process.

The request is a file in the run directory; the conductor looks for it and ends in order, as on
Ctrl-C. Whether there is a conductor shows in its lock on the ledger.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fleetmark.conduct.record import set_state
from fleetmark.errors import InfrastructureError
from fleetmark.ledger import Ledger
from fleetmark.store import RunDirectory, read_json, write_atomic, write_sums

REQUEST_NAME = ".stop.tmp"
"""Ends in .tmp, so that it is never taken for evidence."""
_POLL_SECONDS = 0.5
_ORDERLY_SECONDS = 900.0
"""An instance with much to write back takes its time to stop."""


@contextmanager
def obeying(run: RunDirectory, stop: threading.Event) -> Iterator[None]:
    """Set `stop` when the request comes, while the block runs."""
    request = run.path / REQUEST_NAME
    request.unlink(missing_ok=True)
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_SECONDS):
            if request.exists():
                stop.set()
                return

    thread = threading.Thread(target=watch, name="stop-request", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        request.unlink(missing_ok=True)


def end_conductor(run: RunDirectory) -> None:
    """Make the conductor of a run stop and wait for it; of one that has died, close the books.

    Raises InfrastructureError when it does not end in time.
    """
    request = run.path / REQUEST_NAME
    limit = time.monotonic() + _ORDERLY_SECONDS
    while time.monotonic() < limit:
        try:
            book = Ledger(run.ledger)
        except InfrastructureError:
            write_atomic(request, b"")
            time.sleep(_POLL_SECONDS)
            continue
        _close(run, book)
        request.unlink(missing_ok=True)
        return
    raise InfrastructureError(
        f"the process that conducts run {run.run_id} does not stop",
        next_step="end it yourself, then ask again",
    )


def _close(run: RunDirectory, book: Ledger) -> None:
    """Write down that a run was cut off, when nobody else has."""
    try:
        if read_json(run.run_json)["state"] in ("planned", "provisioning", "running"):
            book.append("interrupted")
            book.append("run_ended", state="interrupted")
            set_state(run, "interrupted", ["its controller had gone; it was stopped afterwards"])
            write_sums(run)
    finally:
        book.close()
