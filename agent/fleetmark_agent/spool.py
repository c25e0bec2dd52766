"""The agent's files on a host: names, the claim, the manifest. See docs/formats.md."""

import hashlib
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from fleetmark_agent import journal, process
from fleetmark_agent.errors import HostError, UsageError

SECRET_FILES = ("secret.json", "sysbench.cnf", "init.sql")
RESERVE_FILE = "reserve"
_NEVER_GATHERED = (*SECRET_FILES, RESERVE_FILE, "shm", "manifest.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+=,-]{0,200}")
_TAIL_BYTES = 65536


def check_name(value: str, what: str) -> str:
    """A run, trial or step as one harmless path element. Raises UsageError."""
    if not _NAME.fullmatch(value):
        raise UsageError("%s %r is not a name" % (what, value))
    return value


def write_json(path: str, value: Any, mode: int = 0o644) -> None:
    """Write a JSON document: beside, durable, then renamed into place."""
    beside = path + ".new"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "w", encoding="utf-8") as handle:
        json.dump(value, handle, indent=1, sort_keys=True)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(beside, path)


def read_json(path: str) -> Optional[Dict[str, Any]]:
    """A JSON object, None when there is no such file. Raises HostError when it is damaged."""
    try:
        with open(path, encoding="utf-8") as handle:
            data = json.load(handle)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise HostError("cannot read %s" % path, evidence=str(error)) from None
    if not isinstance(data, dict):
        raise HostError("%s is not a JSON object" % path)
    return data


def read_password(directory: str) -> str:
    """The password that came beside a job or an instance; empty when none came."""
    data = read_json(os.path.join(directory, "secret.json")) or {}
    return str(data.get("password", ""))


def remove(path: str) -> None:
    """Delete a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def free_bytes(path: str) -> int:
    """What an ordinary user may still write on the filesystem of a path."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def write_manifest(directory: str) -> None:
    """List every file of a directory with size and checksum. Nothing may change after it."""
    files = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name in _NEVER_GATHERED or name.endswith(".new") or not os.path.isfile(path):
            continue
        with open(path, "rb") as handle:
            digest = hashlib.sha256()
            for chunk in iter(lambda: handle.read(1 << 20), b""):
                digest.update(chunk)
        files[name] = {"bytes": os.path.getsize(path), "sha256": digest.hexdigest()}
    write_json(os.path.join(directory, "manifest.json"), {"version": 1, "files": files})


@dataclass(frozen=True)
class JobPlace:
    """The directory of one job and what can be read off it."""

    run: str
    trial: str
    step: str
    path: str

    def file(self, name: str) -> str:
        """A file of the job."""
        return os.path.join(self.path, name)

    @property
    def supervisor(self) -> Optional[process.Identity]:
        """Who supervises the job, or did."""
        return process.read_pid_file(self.file("pid"))

    @property
    def ended(self) -> Optional[Dict[str, Any]]:
        """The journal's `ended` record, None while there is none."""
        try:
            with open(self.file(journal.JOURNAL_NAME), "rb") as handle:
                size = handle.seek(0, os.SEEK_END)
                handle.seek(max(0, size - _TAIL_BYTES))
                lines = journal.split_lines(handle.read())[0]
        except FileNotFoundError:
            return None
        if not lines or b'"kind":"ended"' not in lines[-1]:
            return None
        return journal.decode(lines[-1])

    @property
    def state(self) -> str:
        """new, armed, ready, released, ended, or lost (its supervisor died before the end)."""
        if self.ended is not None:
            return "ended"
        try:
            with open(self.file(journal.JOURNAL_NAME), "rb") as handle:
                text = handle.read()
        except FileNotFoundError:
            text = b""
        if not process.alive(self.supervisor):
            return "lost" if text else "new"
        # Searched and not decoded: this is asked often while a job arms.
        for kind in (journal.RELEASED, journal.READY):
            if b'"kind":"%s"' % kind.encode() in text:
                return kind
        return "armed"


@dataclass(frozen=True)
class Spool:
    """All that lies below the base directory."""

    base: str

    def make(self) -> None:
        """Make the base directory, for its owner only. Raises HostError."""
        try:
            # One after the other: makedirs gives the mode to the last directory only.
            for path in (self.base, os.path.join(self.base, "runs")):
                os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise HostError(
                "cannot make the base directory %s" % self.base,
                evidence=str(error),
                next_step="set fleetmark_base_dir to a place that this user may write",
            ) from None

    def run_path(self, run: str) -> str:
        """Where a run's files lie."""
        return os.path.join(self.base, "runs", check_name(run, "run"))

    def instance_path(self, run: str, trial: str) -> str:
        """Where the files of a trial's instance lie."""
        return os.path.join(self.run_path(run), check_name(trial, "trial"), "dbms")

    def job(self, run: str, trial: str, step: str) -> JobPlace:
        """The place of one job."""
        path = os.path.join(
            self.run_path(run), check_name(trial, "trial"), check_name(step, "step")
        )
        return JobPlace(run, trial, step, path)

    def runs(self) -> List[str]:
        """The runs that have files here."""
        return _directories(os.path.join(self.base, "runs"))

    def jobs(self, run: str) -> List[JobPlace]:
        """All jobs of a run, in order of trial and step."""
        top = self.run_path(run)
        return [
            self.job(run, trial, step)
            for trial in _directories(top)
            for step in _directories(os.path.join(top, trial))
            if os.path.exists(os.path.join(top, trial, step, "job.json"))
        ]

    def instances(self, run: str) -> List[str]:
        """The directories of a run's instances."""
        top = self.run_path(run)
        paths = [os.path.join(top, trial, "dbms") for trial in _directories(top)]
        return [path for path in paths if os.path.isdir(path)]

    @property
    def _claim_path(self) -> str:
        return os.path.join(self.base, "claim.json")

    def claimed_by(self) -> Optional[Dict[str, Any]]:
        """The claim on this host, None when it is free."""
        return read_json(self._claim_path)

    def claim(self, run: str, by: str = "") -> None:
        """Take the host for a run; again for the same run is fine. Raises HostError."""
        check_name(run, "run")
        self.make()
        # Written first and linked after: a claim that can be seen is whole.
        beside = "%s.%d" % (self._claim_path, os.getpid())
        write_json(beside, {"run": run, "t": time.time(), "by": by})
        try:
            os.link(beside, self._claim_path)
        except FileExistsError:
            holder = self.claimed_by()
            if holder is not None and holder.get("run") != run:
                raise HostError(
                    "this host is held by run %s" % holder.get("run"),
                    evidence="%s, since %s by %s"
                    % (self._claim_path, _when(holder.get("t")), holder.get("by") or "unknown"),
                    next_step="wait for that run, or end it: fleetmark stop %s" % holder.get("run"),
                ) from None
        finally:
            os.unlink(beside)

    def free(self, run: str) -> bool:
        """Give the host back, if this run holds it; whether it did."""
        holder = self.claimed_by()
        if holder is None or holder.get("run") != run:
            return False
        remove(self._claim_path)
        return True

    def delete_run(self, run: str) -> bool:
        """Delete a run's files; whether there were any."""
        path = self.run_path(run)
        if not os.path.isdir(path):
            return False
        shutil.rmtree(path)
        return True


def _directories(path: str) -> List[str]:
    try:
        return sorted(entry.name for entry in os.scandir(path) if entry.is_dir())
    except FileNotFoundError:
        return []


def _when(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)):
        return "an unknown time"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
