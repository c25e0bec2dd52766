"""Ansible's events -> progress, per-host status, and lines that are safe to keep."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

_OUTCOMES = {
    "runner_on_ok": "ok",
    "runner_on_skipped": "skipped",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}
_KEPT_DATA = (
    "play",
    "task",
    "role",
    "task_action",
    "host",
    "duration",
    "ignore_errors",
    "changed",
    "dark",
    "failures",
    "ignored",
    "ok",
    "processed",
    "rescued",
    "skipped",
)
_KEPT_RESULT = (
    "censored",
    "changed",
    "checksum",
    "cmd",
    "dest",
    "failed",
    "item",
    "msg",
    "rc",
    "skip_reason",
    "skipped",
    "stderr",
    "stdout",
    "unreachable",
)
_LONGEST_TEXT = 4000


@dataclass(frozen=True)
class HostProgress:
    """One task has ended on one host, or told how far it is.

    `outcome`: ok, changed, skipped, failed, unreachable, or running with the task's own words
    in `text`.
    """

    host: str
    task: str
    outcome: str
    tasks_done: int
    text: str = ""


@dataclass(frozen=True)
class HostStatus:
    """One host at the end: counts of tasks, and why it is not ready."""

    ok: int = 0
    changed: int = 0
    failures: int = 0
    unreachable: int = 0
    skipped: int = 0
    failed_task: str = ""
    message: str = ""

    @property
    def ready(self) -> bool:
        """Whether every task went well."""
        return not (self.failures or self.unreachable or self.failed_task or self.message)


@dataclass
class Recorder:
    """Listens to one run of a playbook. `handle` must be quick: Ansible waits for it."""

    names: list[str]
    events: IO[str]
    progress: Callable[[HostProgress], None]
    finished: bool = False
    _failures: dict[str, tuple[str, str]] = field(default_factory=dict)
    _tasks_done: dict[str, int] = field(default_factory=dict)
    _stats: dict[str, dict[str, int]] = field(default_factory=dict)

    def handle(self, event: dict[str, Any]) -> bool:
        """Take one event. False: ansible-runner need not keep it, with its arguments, on disk."""
        data = event.get("event_data") or {}
        kind = str(event.get("event"))
        if kind != "verbose":
            self.events.write(json.dumps(_kept(event, data), default=str) + "\n")
        if kind == "playbook_on_stats":
            self.finished = True
            names = ("ok", "changed", "failures", "dark", "skipped")
            self._stats = {name: dict(data.get(name) or {}) for name in names}
        elif kind in _OUTCOMES and data.get("host") in self.names:
            self._task_ended(str(data["host"]), _OUTCOMES[kind], data)
        elif kind == "runner_retry" and data.get("host") in self.names:
            self._still_running(str(data["host"]), data)
        return False

    def _still_running(self, host: str, data: Mapping[str, Any]) -> None:
        """A task that asks until an answer is final: what the last answer said."""
        said = str((data.get("res") or {}).get("stdout") or "").strip().splitlines()[-1:]
        done = self._tasks_done.get(host, 0)
        task = str(data.get("task") or "")
        self.progress(HostProgress(host, task, "running", done, "".join(said)))

    def _task_ended(self, host: str, outcome: str, data: Mapping[str, Any]) -> None:
        result = data.get("res") or {}
        bad = outcome in ("failed", "unreachable")
        if bad and not data.get("ignore_errors"):
            self._failures[host] = (str(data.get("task") or ""), explain(result))
        if outcome == "ok" and result.get("changed"):
            outcome = "changed"
        self._tasks_done[host] = self._tasks_done.get(host, 0) + 1
        task = str(data.get("task") or "")
        self.progress(HostProgress(host, task, outcome, self._tasks_done[host]))

    def hosts(self) -> dict[str, HostStatus]:
        """The status of every host that was asked for, also of those that Ansible never met."""
        return {name: self._host(name) for name in self.names}

    def _host(self, name: str) -> HostStatus:
        task, message = self._failures.get(name, ("", ""))
        counts = {kind: self._stats.get(kind, {}).get(name, 0) for kind in self._stats}
        if self.finished and not any(counts.values()):
            message = message or "Ansible did nothing on this host; is it in the inventory?"
        if not self.finished and not message:
            message = "provisioning ended before this host was ready"
        if not (counts.get("failures") or counts.get("dark")) and self.finished and task:
            task, message = "", ""  # rescued: the play went on
        return HostStatus(
            ok=counts.get("ok", 0),
            changed=counts.get("changed", 0),
            failures=counts.get("failures", 0),
            unreachable=counts.get("dark", 0),
            skipped=counts.get("skipped", 0),
            failed_task=task,
            message=message,
        )


def explain(result: Mapping[str, Any]) -> str:
    """Why a task failed, in one line of plain words where the cause is known."""
    if "censored" in result:
        return "its output is hidden, since it may hold a secret"
    texts = [
        f"{item.get('item', '')}: {item.get('msg', '')}"
        for item in result.get("results") or []
        if isinstance(item, Mapping) and item.get("failed")
    ]
    if result.get("msg") == "non-zero return code":
        texts.append(_program_words(result))
    texts += [str(result.get(key) or "") for key in ("msg", "stderr", "module_stderr")]
    texts = [" ".join(text.split()) for text in texts if text.strip()]
    if re.search(_NO_ROOT, " ".join(texts)):
        return (
            f"it does not let us become root ({next(t for t in texts if re.search(_NO_ROOT, t))});"
            " give the user sudo without a password, or log in as root"
        )
    if result.get("unreachable"):
        for pattern, words in _CAUSES_OF_UNREACHABLE:
            if re.search(pattern, " ".join(texts)):
                return words
    return texts[0][:_LONGEST_TEXT] if texts else "no reason was given"


def _program_words(result: Mapping[str, Any]) -> str:
    """What a failed program said: the agent's own error, or the end of its error output."""
    try:
        error = json.loads(str(result.get("stdout")))["error"]
        return " ".join(str(error[key]) for key in ("message", "evidence") if error.get(key))
    except (ValueError, KeyError, TypeError, AttributeError):
        last = str(result.get("stderr") or "").strip().splitlines()[-1:]
        return f"exit code {result.get('rc')}: {''.join(last) or 'it said nothing'}"


_NO_ROOT = (
    r"[Mm]issing sudo password|sudo: (command )?not found|sudo: No such file"
    r"|sudo: a (terminal|password) is required|not in the sudoers|may not run sudo"
)
_CAUSES_OF_UNREACHABLE = (
    (
        r"HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one on record: it is another machine, was installed anew, or"
        " somebody stands between. When you know why, put the new key into known_hosts",
    ),
    (
        r"Host key verification failed|host key is known|Host key for server",
        "its host key is not on record; compare the key with the machine's own and put it into"
        " known_hosts",
    ),
    (r"Permission denied \(", "it refuses the login; check user and key of the inventory"),
    (r"Connection refused", "it refuses the connection; does sshd run on that port?"),
    (
        r"timed out|No route to host|Network is unreachable",
        "it does not answer; check its address and that it is up",
    ),
    (r"Could not resolve hostname", "its name is not known; check ansible_host"),
)


def _kept(event: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are kept: named one by one, so that no argument slips through."""
    kept: dict[str, Any] = {
        "counter": event.get("counter"),
        "created": event.get("created"),
        "event": event.get("event"),
    }
    kept.update({key: data[key] for key in _KEPT_DATA if key in data})
    result = data.get("res")
    if isinstance(result, Mapping):
        kept["result"] = _kept_result(result)
        items = [r for r in result.get("results") or [] if isinstance(r, Mapping)]
        if items and "censored" not in result:
            kept["result"]["results"] = [_kept_result(item) for item in items]
    return kept


def _kept_result(result: Mapping[str, Any]) -> dict[str, Any]:
    if "censored" in result:
        return {key: result[key] for key in ("censored", "changed", "failed") if key in result}
    return {
        key: value[:_LONGEST_TEXT] if isinstance(value, str) else value
        for key, value in result.items()
        if key in _KEPT_RESULT
    }
