"""The wire: what is sent comes back as it was, and what is not understood is refused."""

import dataclasses
import json

import pytest

from fleetmark_agent import job

CONNECTION = job.Connection("10.0.0.1", 3306, "fleetmark", "fleetmark")
LOAD = job.Load(
    script="insert_benchmark",
    connection=CONNECTION,
    streams=[job.Stream("insert", 2, "insert", 20.0, True, {"x": 1})],
    options={"clients": 2, "one_table": False},
)
JOB = job.Job(
    run="r",
    trial="t",
    step="01-l.i0",
    host="load1",
    samplers=job.Samplers(dbms_connection=CONNECTION, dbms_interval_seconds=1.0),
    deadline_seconds=60.0,
    load=LOAD,
    settle=job.Settle(CONNECTION, ["pi1"], 3.0),
)


def test_a_job_comes_back_as_it_was_sent() -> None:
    assert job.decode_job(job.encode(JOB)) == JOB


def test_an_instance_comes_back_as_it_was_sent() -> None:
    dbms = job.Dbms("r", "t", "mariadb", "/d", 3306, "127.0.0.1", "x=1\n", {"x": "1"})
    assert job.decode_dbms(job.encode(dbms)) == dbms


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "version 2, this agent reads 1"),
        ({"colour": "red"}, "job: unknown field colour"),
        ({"load": {"script": "x"}}, "job.load.connection: expected an object"),
        ({"samplers": None}, "job.samplers: expected an object"),
    ],
)
def test_what_is_not_understood_is_refused(change: dict[str, object], words: str) -> None:
    data = {**dataclasses.asdict(JOB), **change}
    with pytest.raises(job.JobError, match=words):
        job.decode_job(json.dumps(data))


def test_a_missing_field_is_named() -> None:
    data = dataclasses.asdict(JOB)
    del data["run"]
    with pytest.raises(job.JobError, match="'run'"):
        job.decode_job(json.dumps(data))
