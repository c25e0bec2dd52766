"""From telemetry words to records: sums, extremes, intervals."""

import mmap
import struct

import pytest

from fleetmark_agent import histogram, shm
from fleetmark_agent.telemetry import Telemetry


class Threads:
    """Writes thread slots as the load does."""

    def __init__(self, path, count):
        shm.SharedFile.create(str(path), count).close()
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 0)

    def set(self, thread, word, value):
        at = (shm.HEADER_WORDS + thread * shm.SLOT_WORDS + word) * shm.WORD_BYTES
        self._map[at : at + 8] = struct.pack("=d", value)

    def service(self, thread, bucket, count):
        self.set(thread, shm.S_SERVICE_HISTOGRAM + bucket, count)
        self.set(thread, shm.S_RESPONSE_HISTOGRAM + bucket + 1, count)


@pytest.fixture
def load(tmp_path):
    threads = Threads(tmp_path / "shm", 3)
    streams = [("insert", range(2)), ("query", range(2, 3))]
    return threads, Telemetry(str(tmp_path / "shm"), streams)


def test_intervals_hold_what_grew(load):
    threads, telemetry = load
    for thread, operations in ((0, 5), (1, 7), (2, 100)):
        threads.set(thread, shm.S_STATE, shm.STATE_RUNNING)
        threads.set(thread, shm.S_OPERATIONS, operations)
        threads.set(thread, shm.S_ROWS, operations * 10)
        threads.set(thread, shm.S_FIRST_EVENT_TIME, 1000.0 + thread)
        threads.service(thread, 40, operations)
    threads.set(1, shm.S_ERROR_DEADLOCK, 2)
    insert, query = telemetry.interval(1.0)
    assert (insert["stream"], insert["threads"], insert["operations"]) == ("insert", 2, 12)
    assert (insert["rows"], insert["errors"], insert["first_event"]) == (120, {"deadlock": 2}, 1000)
    assert insert["service"] == [(40, 12)]
    assert insert["response"] == [(41, 12)]
    assert (query["stream"], query["operations"]) == ("query", 100)

    threads.set(0, shm.S_OPERATIONS, 6)
    threads.service(0, 40, 6)
    threads.set(0, shm.S_STATE, shm.STATE_DONE)
    threads.set(1, shm.S_LAG_SECONDS, 2.5)
    insert, query = telemetry.interval(0.5)
    assert (insert["operations"], insert["total_operations"], insert["threads"]) == (1, 13, 1)
    assert (insert["service"], insert["errors"], insert["lag_seconds"]) == ([(40, 1)], {}, 2.5)
    assert (query["operations"], query["service"], query["interval_seconds"]) == (0, [], 0.5)


def test_ends_hold_the_whole_step(load):
    threads, telemetry = load
    for thread in (0, 1):
        threads.set(thread, shm.S_OPERATIONS, 3)
        threads.service(thread, 10 + thread, 3)
        threads.set(thread, shm.S_LAST_EVENT_TIME, 2000.0 + thread)
        threads.set(thread, shm.S_SERVICE_SUM_US, 30.0)
        threads.set(thread, shm.S_SERVICE_MAX_US, 11.0 + thread)
        threads.set(thread, shm.S_USER + 2, 4.0)
    telemetry.interval(1.0)
    insert, query = telemetry.ends()
    assert (insert["operations"], insert["last_event"], insert["threads"]) == (6, 2001, 2)
    assert (insert["service_sum_us"], insert["service_max_us"]) == (60.0, 12.0)
    assert histogram.count_of(histogram.from_pairs(insert["service"])) == 6
    assert insert["user"][:4] == [0, 0, 8, 0]
    assert (query["first_event"], query["last_event"], query["errors"]) == (None, None, {})


def test_release_and_stop_reach_the_threads(load, tmp_path):
    _, telemetry = load
    assert telemetry.release_time == 0
    other = shm.SharedFile(str(tmp_path / "shm"))
    other.release(123.5)
    assert telemetry.release_time == 123.5
    telemetry.stop()
    assert other.stopping
    assert telemetry.states() == [shm.STATE_NEW] * 3
    other.close()
