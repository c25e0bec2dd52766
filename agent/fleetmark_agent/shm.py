"""The telemetry file that load threads and agent share (`MAP_SHARED`).

The file is an array of doubles in native byte order: a header, then one slot a thread. Each
thread alone writes its slot, the agent alone writes the control words (the load writes
H_FINISHED and H_SCRIPT_MEMORY), nobody locks; an aligned
8-byte store is atomic on the processors we run on, and a double counts exactly to 2**53. The
same numbers stand in `lua/shm.lua`; a test compares the two files.
"""

import mmap
import os
from dataclasses import dataclass
from typing import Dict, List

from fleetmark_agent import histogram

MAGIC = 7235021.0
LAYOUT_VERSION = 1.0
WORD_BYTES = 8

# Header words.
H_MAGIC = 0
H_VERSION = 1
H_THREADS = 2
H_SLOT_WORDS = 3
H_STOP = 4
"""0 go on, 1 end as soon as the running operation is done."""
H_RELEASE_TIME = 5
"""Release time T0 on this host's wall clock in seconds; 0 until released."""
H_BUCKETS = 6
H_FINISHED = 7
"""1 when all defining streams are done or a thread has failed; written by the load itself."""
H_SCRIPT_MEMORY = 8
"""Address of what the script shares between its threads; means something in the load only."""
HEADER_WORDS = 64

# Slot words.
S_STATE = 0
S_FIRST_EVENT_TIME = 1
S_LAST_EVENT_TIME = 2
S_OPERATIONS = 3
S_ROWS = 4
S_STATEMENTS = 5
S_ERROR_DEADLOCK = 6
S_ERROR_LOCK_WAIT = 7
S_ERROR_CONNECTION = 8
S_ERROR_COMMIT_UNKNOWN = 9
S_ERROR_OTHER = 10
S_RETRIES = 11
S_RECONNECTS = 12
S_SERVICE_SUM_US = 13
S_SERVICE_MAX_US = 14
S_RESPONSE_SUM_US = 15
S_RESPONSE_MAX_US = 16
S_LAG_SECONDS = 17
"""How far the stream is behind its schedule (limited streams), in seconds."""
S_STATUS = 18
"""The DBMS error number of the last error, 0 if none."""
S_UNLIMITED = 19
"""1 for a thread without a schedule: its response times are its service times, written once.
Touching two histograms an operation would double the cache lines that telemetry costs."""
S_USER = 20
"""First of 12 words whose meaning the script defines (docs/formats.md)."""
USER_WORDS = 12
S_SERVICE_HISTOGRAM = 32
S_RESPONSE_HISTOGRAM = S_SERVICE_HISTOGRAM + histogram.BUCKETS
SLOT_WORDS = S_RESPONSE_HISTOGRAM + histogram.BUCKETS

# Values of S_STATE.
STATE_NEW = 0
STATE_READY = 1
STATE_RUNNING = 2
STATE_DONE = 3
STATE_FAILED = 4

ERROR_WORDS: Dict[str, int] = {
    "deadlock": S_ERROR_DEADLOCK,
    "lock_wait": S_ERROR_LOCK_WAIT,
    "connection": S_ERROR_CONNECTION,
    "commit_unknown": S_ERROR_COMMIT_UNKNOWN,
    "other": S_ERROR_OTHER,
}


@dataclass(frozen=True)
class Slot:
    """A copy of one thread's slot: all words as floats, histograms as sparse counts."""

    words: List[float]
    service: histogram.Sparse
    response: histogram.Sparse


class SharedFile:
    """The agent's side of the telemetry file."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as handle:
            self._map = mmap.mmap(handle.fileno(), 0, mmap.MAP_SHARED)
        self._words = memoryview(self._map).cast("d")
        if self._words[H_MAGIC] != MAGIC or self._words[H_VERSION] != LAYOUT_VERSION:
            self.close()
            raise ValueError("%s is not a telemetry file of this version" % path)
        self.threads = int(self._words[H_THREADS])

    @classmethod
    def create(cls, path: str, threads: int) -> "SharedFile":
        """Make the file for `threads` threads, zeroed, mode 0600; it must not exist yet."""
        size = (HEADER_WORDS + threads * SLOT_WORDS) * WORD_BYTES
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            # Allocated, not sparse: a full disk must show here and not as SIGBUS in the load.
            os.posix_fallocate(fd, 0, size)
            with mmap.mmap(fd, 0, mmap.MAP_SHARED) as mapped:
                words = memoryview(mapped).cast("d")
                words[H_THREADS] = threads
                words[H_SLOT_WORDS] = SLOT_WORDS
                words[H_BUCKETS] = histogram.BUCKETS
                words[H_VERSION] = LAYOUT_VERSION
                words[H_MAGIC] = MAGIC
                words.release()
        finally:
            os.close(fd)
        return cls(path)

    def release(self, release_time: float) -> None:
        """Let the threads go at `release_time` (this host's wall clock, seconds)."""
        self._words[H_RELEASE_TIME] = release_time

    @property
    def release_time(self) -> float:
        """The release time that was set, 0 if none."""
        return self._words[H_RELEASE_TIME]

    def stop(self) -> None:
        """Ask all threads to end after the operation they are in."""
        self._words[H_STOP] = 1.0

    @property
    def stopping(self) -> bool:
        """Whether the threads were asked to end."""
        return self._words[H_STOP] != 0.0

    def state(self, thread: int) -> int:
        """One of the STATE_ values."""
        return int(self._words[HEADER_WORDS + thread * SLOT_WORDS])

    def slot(self, thread: int) -> Slot:
        """Copy a thread's slot. The copy is not atomic over words: a count may be ahead of
        its histogram by the operation that is being counted."""
        start = HEADER_WORDS + thread * SLOT_WORDS
        words: List[float] = list(self._words[start : start + S_SERVICE_HISTOGRAM])
        service = self._sparse(start + S_SERVICE_HISTOGRAM)
        if words[S_UNLIMITED]:
            words[S_RESPONSE_SUM_US] = words[S_SERVICE_SUM_US]
            words[S_RESPONSE_MAX_US] = words[S_SERVICE_MAX_US]
            return Slot(words, service, dict(service))
        return Slot(words, service, self._sparse(start + S_RESPONSE_HISTOGRAM))

    def _sparse(self, start: int) -> histogram.Sparse:
        counts = self._words[start : start + histogram.BUCKETS].tolist()
        return {bucket: int(count) for bucket, count in enumerate(counts) if count}

    def close(self) -> None:
        """Unmap the file."""
        self._words.release()
        self._map.close()
