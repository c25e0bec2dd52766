"""One run of a playbook by ansible-runner. Its only user.

The private directory of a run is deleted whatever happens. What is kept goes to
`provision/<phase>/` of the run directory (docs/formats.md): chosen fields of the events, so
that no task arguments and no censored results come along.
"""

import contextlib
import dataclasses
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import fleetmark
from fleetmark import processes
from fleetmark.bundle import Bundle
from fleetmark.errors import ConfigError, HostError, InfrastructureError, Interrupted
from fleetmark.provision.events import HostProgress, HostStatus, Recorder
from fleetmark.store import write_atomic, write_json

STATUS_VERSION = 1
_MOST_FORKS = 50
_CONNECT_TIMEOUT_SECONDS = 10
_IDLE_TIMEOUT_SECONDS = 1800
"""A package mirror can be slow and a compiler silent; nothing here is silent for longer."""


@dataclass(frozen=True)
class Provisioning:
    """What to do: a playbook over some hosts of an inventory.

    `directory` is `provision/<phase>/` of the run directory. `variables` are extra variables
    (see `variables`). `check` changes nothing on the hosts and reports what would change.
    `playbook` is one of ours by name, or any by its absolute path. With `tags` only the tasks
    that have one of them are done.
    """

    inventory: Path
    hosts: list[str]
    directory: Path
    variables: Mapping[str, Any] = field(default_factory=dict)
    check: bool = False
    playbook: str = "provision.yml"
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ProvisionResult:
    """What came of it, host by host. Some hosts may have failed while the others are ready."""

    status: Literal["successful", "failed"]
    hosts: dict[str, HostStatus]
    seconds: float

    @property
    def failed(self) -> dict[str, HostStatus]:
        """The hosts that are not ready."""
        return {name: host for name, host in self.hosts.items() if not host.ready}

    def require_all(self) -> None:
        """Raise HostError for one failed host, InfrastructureError for several."""
        failed = self.failed
        if not failed:
            return
        evidence = "\n".join(f"{name}: {_why(host)}" for name, host in failed.items())
        next_step = "provision/<phase>/stdout.txt in the run directory holds Ansible's own words"
        if len(failed) == 1:
            name, host = next(iter(failed.items()))
            raise HostError(_why(host), host=name, evidence=evidence, next_step=next_step)
        raise InfrastructureError(
            f"{len(failed)} of {len(self.hosts)} hosts are not ready: {', '.join(failed)}",
            evidence=evidence,
            next_step=next_step,
        )


def ansible_content() -> Path:
    """The directory of `playbooks/` and `roles/`: packaged, or the checkout."""
    package = Path(fleetmark.__file__).parent
    # An editable installation has no packaged copy; there the checkout is two levels up.
    for candidate in (package / "_ansible", package.parent.parent):
        if (candidate / "playbooks").is_dir() and (candidate / "roles").is_dir():
            return candidate
    raise InfrastructureError(
        f"the playbooks are not part of this installation ({package})",
        next_step="install Fleetmark again: pip install .",
    )


def variables(
    agent: Bundle,
    db_hosts: list[str],
    packages: list[str],
    facts_directory: Path | None = None,
) -> dict[str, Any]:
    """The variables of playbooks/provision.yml.

    `packages` are the DBMS packages of the builds, for `db_hosts` alone. Each host's facts go
    to `facts_directory/<host>/facts.json`.
    """
    return {
        "provision_agent_zipapp": str(agent.path.absolute()),
        "provision_agent_sha256": agent.sha256,
        "provision_db_hosts": db_hosts,
        "provision_dbms_packages": packages,
        "provision_facts_directory": str(facts_directory.absolute()) if facts_directory else "",
    }


def run(
    work: Provisioning,
    progress: Callable[[HostProgress], None] = lambda _: None,
    cancel: threading.Event | None = None,
) -> ProvisionResult:
    """Run a playbook; `progress` is called once a host and task, from another thread.

    One bad host does not stop the others: look at the result, or call its `require_all`.
    Raises InfrastructureError when Ansible itself fails, and Interrupted (or KeyboardInterrupt)
    with nothing of it left running when it is stopped.
    """
    if not work.hosts:
        raise ConfigError("no host to provision")
    work.directory.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    stop = cancel or threading.Event()
    with _private_directory() as private, (work.directory / "events.jsonl").open("w") as events:
        recorder = Recorder(work.hosts, events, progress)
        outcome = _Outcome()
        thread = threading.Thread(
            target=outcome.fill, args=(_arguments(work, private), recorder, stop)
        )
        thread.start()
        try:
            thread.join()
        except BaseException:
            stop.set()
            thread.join()
            raise
        stdout = outcome.stdout(private)
    write_atomic(work.directory / "stdout.txt", stdout.encode())
    result = _result(recorder, outcome, time.monotonic() - started)
    _write_status(work.directory, outcome.status, result)
    _raise_if_ansible_failed(outcome, recorder, stdout)
    return result


def _arguments(work: Provisioning, private: Path) -> dict[str, Any]:
    """Arguments of ansible_runner.run. Secrets are in none of them: they stay in the inventory."""
    content = ansible_content()
    control = private / "cp"
    control.mkdir(mode=0o700)
    here = str(Path(sys.executable).parent)
    return {
        "private_data_dir": str(private),
        # Ansible works where the user is, so relative paths and ansible.cfg mean the same.
        "project_dir": str(Path.cwd()),
        "ident": "fleetmark",
        "playbook": str(content / "playbooks" / work.playbook),
        "inventory": str(work.inventory.absolute()),
        "limit": ",".join(work.hosts),
        "extravars": dict(work.variables),
        "forks": min(len(work.hosts), _MOST_FORKS),
        "cmdline": " ".join(_options(work)) or None,
        "quiet": True,
        "settings": {"idle_timeout": _IDLE_TIMEOUT_SECONDS, "pexpect_timeout": 1},
        "envvars": {
            "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "ANSIBLE_ROLES_PATH": str(content / "roles"),
            "ANSIBLE_HOST_KEY_CHECKING": "True",
            "ANSIBLE_PIPELINING": "True",
            "ANSIBLE_TIMEOUT": str(_CONNECT_TIMEOUT_SECONDS),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(control),
            "ANSIBLE_LOCAL_TEMP": str(private / "tmp"),
            "ANSIBLE_RETRY_FILES_ENABLED": "False",
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "True",
            "ANSIBLE_NOCOLOR": "True",
        },
    }


def _options(work: Provisioning) -> list[str]:
    tags = ["--tags", shlex.quote(",".join(work.tags))] if work.tags else []
    return [*(["--check"] if work.check else []), *tags]


@contextlib.contextmanager
def _private_directory() -> Iterator[Path]:
    """A directory for one run of Ansible; at its end nothing of it is left, nor of its processes.

    ansible-runner kills Ansible's process group, but Ansible's workers and SSH's masters have
    groups of their own. All inherit an environment that names this directory.
    """
    private = Path(tempfile.mkdtemp(prefix="fm-"))
    try:
        yield private
    finally:
        processes.end_all(lambda: processes.with_environment(str(private)), "Ansible")
        shutil.rmtree(private, ignore_errors=True)


class _Outcome:
    """What one call of ansible-runner came to; filled in a thread of its own."""

    def __init__(self) -> None:
        self.status = "failed"
        self.returncode = 1
        self.error: Exception | None = None

    def fill(self, arguments: dict[str, Any], recorder: Recorder, stop: threading.Event) -> None:
        import ansible_runner  # noqa: PLC0415 (slow, and needed by few verbs)

        try:
            done = ansible_runner.run(
                **arguments, event_handler=recorder.handle, cancel_callback=stop.is_set
            )
        except Exception as error:
            # It runs in a thread: whatever it is must reach the thread that waits.
            self.error = error
        else:
            self.status, self.returncode = str(done.status), int(done.rc)

    def stdout(self, private: Path) -> str:
        path = private / "artifacts" / "fleetmark" / "stdout"
        return path.read_text(errors="replace") if path.is_file() else ""


def _result(recorder: Recorder, outcome: _Outcome, seconds: float) -> ProvisionResult:
    hosts = recorder.hosts()
    good = outcome.status == "successful" and all(host.ready for host in hosts.values())
    return ProvisionResult("successful" if good else "failed", hosts, round(seconds, 3))


def _write_status(directory: Path, status: str, result: ProvisionResult) -> None:
    write_json(
        directory / "status.json",
        {
            "version": STATUS_VERSION,
            "status": status,
            "hosts": {name: dataclasses.asdict(host) for name, host in result.hosts.items()},
            "seconds": result.seconds,
        },
    )


def _raise_if_ansible_failed(outcome: _Outcome, recorder: Recorder, stdout: str) -> None:
    if outcome.error is not None:
        raise InfrastructureError(
            "ansible-runner failed", evidence=f"{type(outcome.error).__name__}: {outcome.error}"
        ) from outcome.error
    if outcome.status == "canceled":
        raise Interrupted("provisioning was stopped", next_step="it can be started again as it was")
    if outcome.status == "timeout":
        raise InfrastructureError(
            f"Ansible said nothing for {_IDLE_TIMEOUT_SECONDS} s and was stopped",
            evidence=stdout[-2000:],
        )
    if not recorder.finished:
        raise InfrastructureError(
            f"Ansible ended with exit code {outcome.returncode} before it reached the hosts",
            evidence=stdout[-2000:].strip(),
        )


def _why(host: HostStatus) -> str:
    return f"{host.failed_task}: {host.message}" if host.failed_task else host.message
