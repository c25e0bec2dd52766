"""The verbs of a job: arm, release, stop, follow, status, and the end of what is left over."""

import contextlib
import os
import signal
import subprocess
import time
from typing import Any, BinaryIO, Dict, List, Optional

from fleetmark_agent import journal, process, shm, spool
from fleetmark_agent.errors import AgentError, HostError, UsageError, WorkloadError
from fleetmark_agent.job import Job, JobError, decode_job
from fleetmark_agent.load_process import PID_FILE, tail
from fleetmark_agent.spool import JobPlace, Spool

STOP_FILE = "stop"
RELEASE_FILE = "release.json"
SUPERVISOR_LOG = "supervisor.log"

_ARM_MARGIN_SECONDS = 30.0
_ARM_POLL_SECONDS = 0.02
_STOP_SECONDS = 45.0
_FOLLOW_POLL_SECONDS = 0.1
_FOLLOW_CHUNK_BYTES = 1 << 18


def read_job(path: str) -> Job:
    """The job in a file. Raises UsageError."""
    try:
        with open(path, encoding="utf-8") as handle:
            return decode_job(handle.read())
    except OSError as error:
        raise UsageError("cannot read the job", evidence=str(error)) from None
    except JobError as error:
        raise UsageError(str(error), evidence=path) from None


def arm(store: Spool, job_path: str, metrics_address: str) -> Dict[str, Any]:
    """Start the supervisor of a job, and wait until the job is ready.

    Raises HostError while another run holds the host, and what the job's own end says when it
    ends before it is ready.
    """
    job = read_job(job_path)
    place = store.job(job.run, job.trial, job.step)
    if os.path.realpath(os.path.dirname(job_path)) != os.path.realpath(place.path):
        raise UsageError("the job belongs into %s" % place.path, evidence=job_path)
    store.claim(job.run)
    if place.state != "new":
        raise HostError(
            "job %s of %s was armed before" % (job.step, job.trial),
            evidence="it is %s" % place.state,
            next_step="a new attempt needs a directory of its own",
        )
    argv = [*process.agent_command(), "--base", store.base, "supervise"]
    argv += ["--run", job.run, "--trial", job.trial, "--step", job.step]
    argv += ["--metrics", metrics_address]
    unit = "fleetmark-job-%d-%d" % (os.getpid(), time.time())
    start = time.monotonic()
    child = process.start_detached(argv, place.file(SUPERVISOR_LOG), unit)
    limit = start + job.arm_timeout_seconds + _ARM_MARGIN_SECONDS
    while time.monotonic() < limit:
        # Asked before looking: what is written before the end is then seen after it.
        gone = _supervisor_gone(place, child)
        state = place.state
        if state in ("ready", "ended"):
            return _armed(place)
        if gone:
            break
        time.sleep(_ARM_POLL_SECONDS)
    raise HostError("the supervisor did not start", evidence=tail(place.file(SUPERVISOR_LOG)))


def _armed(place: JobPlace) -> Dict[str, Any]:
    """The answer of `arm`, or the error that ended the job."""
    with open(place.file(journal.JOURNAL_NAME), "rb") as handle:
        lines = journal.split_lines(handle.read())[0]
    for record in map(journal.decode, lines):
        if record["kind"] == journal.READY:
            return {"ready": True, "threads": record["threads"], "seconds": record["seconds"]}
    raise _failure(place, journal.decode(lines[-1]))


def _supervisor_gone(place: JobPlace, child: Optional["subprocess.Popen[bytes]"]) -> bool:
    if child is not None:
        return child.poll() is not None
    return place.supervisor is not None and not process.alive(place.supervisor)


def _failure(place: JobPlace, ended: Dict[str, Any]) -> AgentError:
    error = WorkloadError if ended["class"] == "workload" else HostError
    evidence = tail(place.file("sysbench.log"), 1000) or tail(place.file(SUPERVISOR_LOG), 1000)
    return error(ended["message"] or "the job ended: %s" % ended["reason"], evidence=evidence)


def release(place: JobPlace, at: float) -> Dict[str, float]:
    """Set a ready job's release time, on this host's clock."""
    state = place.state
    if state != "ready":
        raise HostError("job %s cannot be released: it is %s" % (place.step, state))
    if os.path.exists(place.file("shm")):
        shared = shm.SharedFile(place.file("shm"))
        shared.release(at)
        shared.close()
    else:
        spool.write_json(place.file(RELEASE_FILE), {"at": at})
    return {"at": at, "now": time.time()}


def stop(places: List[JobPlace]) -> Dict[str, List[str]]:
    """Ask jobs to end, all at once, and wait until they have."""
    asked = [place for place in places if place.state in ("armed", "ready", "released")]
    for place in asked:
        with contextlib.suppress(FileExistsError), open(place.file(STOP_FILE), "xb"):
            pass
        identity = place.supervisor
        if identity is not None:
            process.send_signal(identity, signal.SIGTERM)
    for place in asked:
        if not process.wait_until(lambda p=place: _over(p), _STOP_SECONDS):  # type: ignore[misc]
            raise HostError(
                "job %s did not end within %g s" % (place.step, _STOP_SECONDS),
                evidence=tail(place.file(SUPERVISOR_LOG)),
                next_step="the verb clean ends it by force",
            )
    return {"stopped": [place.step for place in asked]}


def _over(place: JobPlace) -> bool:
    return not process.alive(place.supervisor)


def follow(place: JobPlace, offset: int, output: BinaryIO) -> None:
    """Write the journal's bytes from an offset, as they come, until the job has ended."""
    path = place.file(journal.JOURNAL_NAME)
    if not os.path.exists(path):
        raise UsageError("there is no journal at %s" % path)
    with open(path, "rb") as handle:
        handle.seek(offset)
        while True:
            # Asked before reading: what is written before the end is then read after it.
            over = _over(place)
            data = handle.read(_FOLLOW_CHUNK_BYTES)
            if data:
                output.write(data)
                output.flush()
            elif over:
                return
            else:
                time.sleep(_FOLLOW_POLL_SECONDS)


def describe(place: JobPlace) -> Dict[str, Any]:
    """A job in the answer of `status`."""
    ended = place.ended
    try:
        size = os.path.getsize(place.file(journal.JOURNAL_NAME))
    except OSError:
        size = 0
    return {
        "run": place.run,
        "trial": place.trial,
        "step": place.step,
        "state": place.state,
        "journal_bytes": size,
        "ended": ended,
    }


def end_leftovers(place: JobPlace) -> bool:
    """End a job by force: supervisor and load, also one that a dead supervisor left behind."""
    ended = False
    for name in ("pid", PID_FILE):
        identity = process.read_pid_file(place.file(name))
        if process.alive(identity):
            ended = True
            process.end(identity, grace_seconds=15.0 if name == "pid" else 0.5)
    for name in (*spool.SECRET_FILES, spool.RESERVE_FILE):
        spool.remove(place.file(name))
    return ended
