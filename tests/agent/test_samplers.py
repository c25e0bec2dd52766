"""The host sampler: its parsers on known text, and its numbers against /proc."""

import os
import time
from pathlib import Path

import pytest

from fleetmark_agent.dbms_status import DbmsSampler, interval_status, number
from fleetmark_agent.job import Connection
from fleetmark_agent.samplers import (
    HostSampler,
    disk_names,
    parse_context_switches,
    parse_cpu,
    parse_disks,
    parse_memory,
    parse_network,
    parse_pressure,
)
from fleetmark_agent.sampling import Ticks

STAT = b"cpu  100 20 300 4000 50 6 7 8 0 0\ncpu0 1 2 3\nintr 5 0\nctxt 987654\nbtime 1\n"
DISKSTATS = b"""   8       0 sda 10 1 16 4 20 2 40 8 0 12 13 3 0 24 1 5 6
   8       1 sda1 1 1 1 1 1 1 1 1 0 1 1
 259       0 nvme0n1 1 0 8 1000 2 0 16 2000 0 3000 1
"""
NET = b"""Inter-|   Receive                  |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop
    lo: 11 1 0 0 0 0 0 0 12 1 0 0 0 0 0 0
  eth0:1000 5 0 3 0 0 0 0 2000 6 0 4 0 0 0 0
"""
TICK = os.sysconf("SC_CLK_TCK")


def test_cpu_seconds_by_kind():
    cpu = parse_cpu(STAT)
    assert cpu == {
        "user": 100 / TICK, "nice": 20 / TICK, "system": 300 / TICK, "idle": 4000 / TICK,
        "iowait": 50 / TICK, "irq": 6 / TICK, "softirq": 7 / TICK, "steal": 8 / TICK,
    }  # fmt: skip
    assert parse_context_switches(STAT) == 987654


def test_disks_in_bytes_and_seconds_and_without_partitions():
    disks = parse_disks(DISKSTATS, [b"sda", b"nvme0n1"])
    assert disks["sda"] == {
        "reads": 10, "read_bytes": 16 * 512, "read_seconds": 0.004,
        "writes": 20, "write_bytes": 40 * 512, "write_seconds": 0.008,
        "busy_seconds": 0.012, "discards": 3, "flushes": 5, "flush_seconds": 0.006,
    }  # fmt: skip
    assert set(disks) == {"sda", "nvme0n1"}
    # An old kernel counts neither discards nor flushes.
    assert "flushes" not in disks["nvme0n1"]


def test_network_memory_pressure():
    assert parse_network(NET)["eth0"] == {
        "rx_bytes": 1000, "tx_bytes": 2000, "rx_drops": 3, "tx_drops": 4
    }  # fmt: skip
    text = b"MemTotal: 100 kB\nMemAvailable: 60 kB\nDirty: 5 kB\nSwapTotal: 9 kB\nSwapFree: 2 kB\n"
    assert parse_memory(text) == {
        "total_bytes": 102400, "available_bytes": 61440, "dirty_bytes": 5120,
        "swap_used_bytes": 7168,
    }  # fmt: skip
    pressure = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0 total=1\n"
    assert parse_pressure(pressure) == 2.5
    assert parse_pressure(b"") is None


def test_a_sample_covers_what_proc_counts():
    before = parse_context_switches(Path("/proc/stat").read_bytes())
    sampler = HostSampler()
    start = time.monotonic()
    busy = time.process_time() + 0.3
    while time.process_time() < busy:
        pass
    record = sampler.sample()
    seconds = time.monotonic() - start
    after = parse_context_switches(Path("/proc/stat").read_bytes())
    sampler.close()

    assert record["interval_seconds"] == pytest.approx(seconds, abs=0.05)
    assert record["cpus"] == os.sysconf("SC_NPROCESSORS_ONLN")
    # Each CPU spends each moment on something; ticks are coarse.
    assert sum(record["cpu"].values()) == pytest.approx(seconds * record["cpus"], rel=0.25)
    # Asking for the time of day is work of the kernel's.
    assert record["cpu"]["user"] + record["cpu"]["system"] >= 0.2
    assert 0.3 <= record["cost_seconds"] < 0.4
    assert 0 < record["context_switches"] <= after - before
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert record["memory"]["total_bytes"] == total
    assert set(record["disks"]) == set(disk_names())


def test_written_bytes_are_seen(tmp_path):
    if not disk_names():
        pytest.skip("no disks are visible here")
    sampler = HostSampler()
    with (tmp_path / "file").open("wb") as handle:
        handle.write(os.urandom(4 << 20))
        handle.flush()
        os.fsync(handle.fileno())
    record = sampler.sample()
    sampler.close()
    if os.stat(tmp_path).st_dev >> 8 == 0:
        pytest.skip("the temporary directory is not on a disk")
    assert sum(disk["write_bytes"] for disk in record["disks"].values()) >= 4 << 20
    assert sum(disk["writes"] for disk in record["disks"].values()) >= 1


def test_missed_ticks_are_left_out():
    ticks = Ticks(1.0, 10.0)
    assert not ticks.due(9.9)
    assert ticks.due(10.0)
    assert ticks.next == 11.0
    assert ticks.due(14.5)
    assert ticks.next == 15.0
    ticks.restart(20.25)
    assert not ticks.due(20.0)
    assert ticks.due(20.3)
    assert ticks.next == 21.25


def test_the_first_tick_may_come_before_the_origin():
    ticks = Ticks(1.0, 10.0)
    ticks.restart(30.0, early_seconds=0.025)
    assert not ticks.due(29.97)
    assert ticks.due(29.976)
    assert ticks.next == 31.0
    assert ticks.due(31.001)
    assert ticks.next == 32.0


def test_counters_are_differences_and_gauges_are_not():
    now = {"Com_insert": 15, "Threads_running": 3, "Innodb_new_name": 7}
    assert interval_status(now, {"Com_insert": 10, "Threads_running": 9}) == {
        "Com_insert": 5, "Threads_running": 3, "Innodb_new_name": 0
    }  # fmt: skip
    assert [number(text) for text in ("7", "7.5", "ON", None)] == [7, 7.5, None, None]


def test_a_dbms_sampler_without_a_server_says_so():
    nowhere = Connection("127.0.0.1", 13499, "fleetmark", "fleetmark")
    sampler = DbmsSampler(nowhere, "x", "/nonexistent/pid")
    with pytest.raises(Exception, match="connect"):
        sampler.begin()
