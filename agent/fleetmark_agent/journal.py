"""The journal of a job: append-only JSON lines, written on the host, read by both ends.

Every line carries `seq` (from 0, without gaps), `t` (the host's wall clock in seconds) and
`kind`. A crash can only cut the last line; a reader takes whole lines and leaves the rest for
the next poll. The kinds and their fields are in docs/formats.md.
"""

import json
import os
import threading
import time
from typing import Any, Dict, List, Tuple

JOURNAL_NAME = "journal.jsonl"

ARMED = "armed"
READY = "ready"
RELEASED = "released"
LOAD = "load"
HOST = "host"
DBMS = "dbms"
STREAM_END = "stream_end"
NOTE = "note"
ENDED = "ended"

KINDS = (ARMED, READY, RELEASED, LOAD, HOST, DBMS, STREAM_END, NOTE, ENDED)


class JournalError(ValueError):
    """A journal that cannot be trusted: damaged line, gap in the sequence, unknown kind."""


class Writer:
    """Appends records. One writer a journal; several threads may share it."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._seq = 0
        self._bytes = os.fstat(self._fd).st_size
        self._lock = threading.Lock()

    def append(self, kind: str, **fields: Any) -> None:
        """Write one record, or nothing of it. Raises OSError when the disk is full or gone."""
        with self._lock:
            record = {"seq": self._seq, "t": round(time.time(), 6), "kind": kind}
            record.update(fields)
            line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
            try:
                written = 0
                while written < len(line):
                    written += os.write(self._fd, line[written:])
            except OSError:
                # Half a line would damage the records that may still follow.
                os.ftruncate(self._fd, self._bytes)
                raise
            self._bytes += len(line)
            self._seq += 1

    def close(self) -> None:
        """Make the journal durable and close it."""
        os.fsync(self._fd)
        os.close(self._fd)


def split_lines(data: bytes) -> Tuple[List[bytes], int]:
    """The whole lines of a chunk, and how many bytes they take."""
    end = data.rfind(b"\n") + 1
    return data[:end].splitlines(), end


def decode(line: bytes) -> Dict[str, Any]:
    """One record. Raises JournalError when the line is damaged or of an unknown kind."""
    try:
        record = json.loads(line)
    except ValueError:
        raise JournalError("damaged journal line: %r" % line[:80]) from None
    if not isinstance(record, dict) or record.get("kind") not in KINDS:
        raise JournalError("not a journal record: %r" % line[:80])
    return record


def read(data: bytes) -> List[Dict[str, Any]]:
    """All whole records of a journal from its start; a cut last line is left out.

    Raises JournalError on damage or on a gap in the sequence.
    """
    records = [decode(line) for line in split_lines(data)[0]]
    for expected, record in enumerate(records):
        if record.get("seq") != expected:
            raise JournalError(
                "journal has record %r where %d belongs" % (record.get("seq"), expected)
            )
    return records
