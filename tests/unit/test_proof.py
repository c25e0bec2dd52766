"""The proof of a step: start errors, overlap, taints, on hand-made records."""

from typing import Any

import pytest

from fleetmark.clock import Offset
from fleetmark.conduct import proof
from fleetmark.experiment import Policy
from fleetmark.workloads import Sla, Step
from fleetmark_agent.job import Connection, Job, Load, Samplers, Stream

POLICY = Policy()
T0 = 1_800_000_000.0


def job(loaded: bool = True) -> Job:
    streams = [Stream("insert", 2, "insert"), Stream("query", 2, "point", defining=False)]
    load = Load("s", Connection("h", 1, "u", "d"), streams) if loaded else None
    return Job("r", "t", "s", "h", Samplers(), 600.0, load)


def end(stream: str, first: float | None, last: float | None, **more: Any) -> dict[str, Any]:
    """A stream_end record; times relative to T0."""
    times = {
        "first_event": None if first is None else T0 + first,
        "last_event": None if last is None else T0 + last,
    }
    return {
        "kind": "stream_end",
        "stream": stream,
        "operations": 100,
        "rows": 1000,
        "errors": {},
        **times,
        **more,
    }


def host(
    name: str,
    *ends: dict[str, Any],
    offset: float = 0.0,
    bound: float = 0.0001,
    **ended: Any,
) -> proof.HostEvidence:
    """Evidence of a load host whose clock is ahead by `offset`."""
    moved = [
        {k: v + offset if k.endswith("_event") and v is not None else v for k, v in e.items()}
        for e in ends
    ]
    last = {
        "kind": "ended",
        "t": T0 + 20,
        "reason": "completed",
        "class": "ok",
        "message": "",
        "load_cpu_seconds": 1.0,
        "sysbench_events": 100 * len(ends),
        **ended,
    }
    before = Offset(offset, bound, 2 * bound, T0)
    released = {"kind": "released", "at": T0 + offset}
    records = [released, *moved, last]
    return proof.HostEvidence(name, "load", job(), records, 4, before, before, 0.8)


def step(**more: Any) -> Step:
    return Step("qr100", "load", [], measure_stream="query", **more)


def taints(hosts: list[proof.HostEvidence], of: Step | None = None) -> list[tuple[str, str]]:
    return proof.taints_of(of or step(), hosts, proof.overlap_of(hosts), POLICY)


def test_overlap_is_from_the_last_start_to_the_first_end() -> None:
    found = proof.overlap_of(
        [
            host("a", end("insert", 0.0, 10.0), end("query", 0.1, 9.5)),
            host("b", end("insert", 0.5, 9.0), offset=100.0),
        ]
    )
    assert found is not None
    assert found.start - T0 == pytest.approx(0.5)
    assert found.end - T0 == pytest.approx(9.0)
    assert found.seconds == pytest.approx(8.5)
    assert found.share == pytest.approx(0.85)


def test_streams_that_never_ran_together_have_no_window() -> None:
    hosts = [host("a", end("insert", 0.0, 1.0)), host("b", end("insert", 2.0, 3.0))]
    found = proof.overlap_of(hosts)
    assert found is not None
    assert (found.seconds, found.share) == (0.0, 0.0)
    assert proof.overlap_of([host("a", end("insert", None, None))]) is None


def test_start_error_is_on_the_hosts_own_clock_and_of_what_defines_the_step() -> None:
    ahead = host("a", end("insert", 0.004, 9.0), end("query", 0.4, 9.0), offset=-50.0)
    assert ahead.start_error_seconds == pytest.approx(0.004, abs=1e-6)
    record = proof.host_record(ahead)
    assert record["first_event"] - T0 == pytest.approx(0.004, abs=1e-6)
    assert record["last_event"] - T0 == pytest.approx(9.0, abs=1e-6)
    assert record["offset_bound_seconds"] == 0.0001


def test_a_good_step_has_no_taint() -> None:
    assert taints([host("a", end("insert", 0.0, 9.0)), host("b", end("insert", 0.01, 9.0))]) == []


@pytest.mark.parametrize(
    ("evidence", "kind", "words"),
    [
        (host("b", end("insert", 0.060, 9.0)), "start_error", "60.0 ms from T0, limit 50 ms"),
        (host("b", end("insert", None, None)), "start_error", "no first event"),
        (host("b", end("insert", 0.0, 7.0)), "overlap", "78% of the longest stream, 90% wanted"),
        (host("b", end("insert", 0.0, 9.0), bound=0.06), "clock", "60.0 ms"),
        (
            host("b", end("insert", 0.0, 9.0, errors={"deadlock": 2, "other": 0})),
            "errors",
            "b: 2 deadlock",
        ),
        (
            host("b", end("insert", 0.0, 9.0), sysbench_events=99),
            "cross_check",
            "counted 99 events, the telemetry 100 operations",
        ),
        (
            host("b", end("insert", 0.0, 9.0), sysbench_events=None),
            "cross_check",
            "gave no count",
        ),
        (host("b", end("insert", 0.0, 9.0), load_cpu_seconds=30.0), "client_cpu", "83%"),
        (host("b", end("insert", 0.0, 9.0), reason="deadline"), "outlived", "deadline"),
        (
            host("b", end("insert", 0.0, 9.0), **{"class": "workload", "message": "boom"}),
            "partial",
            "boom",
        ),
    ],
)
def test_each_taint(evidence: proof.HostEvidence, kind: str, words: str) -> None:
    found = taints([host("a", end("insert", 0.0, 9.0)), evidence])
    assert kind in [k for k, _ in found]
    assert words in next(text for k, text in found if k == kind)


def test_client_cpu_just_below_the_limit_is_no_taint() -> None:
    assert taints([host("a", end("insert", 0.0, 10.0), load_cpu_seconds=32.0)]) == []


def test_sla_is_over_the_real_duration() -> None:
    # 2 hosts x 1000 rows over 10 s are 200 rows/s.
    hosts = [host("a", end("insert", 0.0, 10.0)), host("b", end("insert", 0.0, 10.0))]
    assert taints(hosts, step(sla=Sla("insert", 210.0))) == []
    missed = taints(hosts, step(sla=Sla("insert", 211.0)))
    assert missed == [("sla", "insert: 94.8% of 211 rows/s, 95% wanted")]


def test_a_host_without_an_end_is_partial() -> None:
    cut = proof.HostEvidence("db1", "db", job(loaded=False), [], 4)
    assert proof.taints_of(step(), [cut], None, POLICY) == [
        ("partial", "db1: its record of the step has no end")
    ]


def test_throttling_is_counted() -> None:
    records = [{"kind": "host", "throttled": 0}, {"kind": "host", "throttled": 3}]
    records.append({"kind": "ended", "reason": "stopped", "class": "ok"})
    db = proof.HostEvidence("db1", "db", job(loaded=False), records, 4)
    assert proof.taints_of(step(), [db], None, POLICY) == [
        ("throttled", "db1: 3 thermal throttling events")
    ]


def test_a_settle_step_lasts_from_t0_to_its_end() -> None:
    records = [{"kind": "ended", "t": T0 + 105.0, "reason": "completed", "class": "ok"}]
    offset = Offset(100.0, 0.001, 0.002, T0)
    db = proof.HostEvidence("db1", "db", job(loaded=False), records, 4, offset)
    assert proof.settle_window(T0, [db]) == proof.Overlap(T0, T0 + 5.0, 1.0)
