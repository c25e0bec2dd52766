"""Ansible module: the limits of sessions, services and the host, and what processes really have."""

import os
import re
import tempfile
from typing import Any, Dict, List, Mapping

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: fleetmark_limits
short_description: The limits of sessions, services and the host
description:
  - C(apply) writes I(files) and raises the bound of asynchronous requests; C(restore) removes the
    files. C(verify) changes nothing; it reads the limits of this session and of the named programs
    that run from /proc, and fails for a process that may have less than asked for.
options:
  task: {description: What to do., type: str, choices: [apply, verify, restore], required: true}
  files: {description: Files with their contents., type: dict}
  aio_requests: {description: Asynchronous requests of the host., type: int, default: 0}
  programs: {description: Names of programs., type: list, elements: str}
  open_files: {description: Files that a process may have open., type: int, required: true}
  locked_memory: {description: KiB that a process may lock or unlimited., type: str, required: true}
author: Fleetmark
"""

EXAMPLES = r"""
- name: Check the limits
  fleetmark_limits:
    task: verify
    programs: [mariadbd]
    open_files: 65536
    locked_memory: unlimited
"""

RETURN = r"""
processes: {description: "Name, pid, open_files and locked_memory.", type: list, returned: verify}
"""

_UNLIMITED = float("inf")


def _number(words: str) -> float:
    return _UNLIMITED if words == "unlimited" else float(words)


def _limits(pid: str) -> Dict[str, str]:
    """The soft limits of a process: files, and locked memory in bytes."""
    with open("/proc/%s/limits" % pid, encoding="ascii") as handle:
        said = handle.read()
    found = {}
    for key, name in (("open_files", "Max open files"), ("locked_memory", "Max locked memory")):
        match = re.search(r"^%s\s+(\S+)" % name, said, re.MULTILINE)
        found[key] = match.group(1) if match else "0"
    return found


def _processes(programs: List[str]) -> "list[dict[str, Any]]":
    found = [{"name": "this session", "pid": os.getpid(), **_limits("self")}]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid, encoding="utf-8") as handle:
                name = handle.read().strip()
            if name in programs:
                found.append({"name": name, "pid": int(pid), **_limits(pid)})
        except OSError:
            continue  # it has ended
    return found


def _too_little(process: Mapping[str, Any], open_files: float, locked_bytes: float) -> bool:
    return (
        _number(process["open_files"]) < open_files
        or _number(process["locked_memory"]) < locked_bytes
    )


_AIO = "/proc/sys/fs/aio-max-nr"


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except OSError:
        return ""


def _write(path: str, content: str) -> None:
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w") as file:
        file.write(content)
    os.chmod(beside, 0o644)
    os.rename(beside, path)


def _apply(module: AnsibleModule) -> "list[str]":
    """What was done or, in check mode, would be."""
    now, wanted = int(_text(_AIO) or 0), module.params["aio_requests"]
    files = dict(module.params["files"])
    if now > wanted:
        # A host that has more already keeps it.
        files = {path: text for path, text in files.items() if "sysctl.d" not in path}
    wrong = [path for path, content in files.items() if _text(path) != content]
    done = ["write %s" % path for path in wrong]
    if now < wanted:
        done.append("fs.aio-max-nr from %d to %d" % (now, wanted))
    if not module.check_mode:
        for path in wrong:
            _write(path, files[path])
        if now < wanted:
            with open(_AIO, "w", encoding="ascii") as handle:
                handle.write(str(wanted))
    return done


def _restore(module: AnsibleModule) -> "list[str]":
    there = [path for path in module.params["files"] if os.path.exists(path)]
    if not module.check_mode:
        for path in there:
            os.unlink(path)
    return ["remove %s" % path for path in there]


def _verify(module: AnsibleModule) -> "list[dict[str, Any]]":
    given = module.params
    processes = _processes(given["programs"])
    # limits.conf and ulimit count locked memory in KiB, /proc in bytes.
    locked_bytes = _number(given["locked_memory"]) * 1024
    poor = [p for p in processes if _too_little(p, given["open_files"], locked_bytes)]
    if poor:
        words = [
            "%(name)s (pid %(pid)d) may open %(open_files)s files and lock %(locked_memory)s bytes"
            % process
            for process in poor
        ]
        module.fail_json(
            msg="%s; asked for are %s files and %s KiB"
            % ("; ".join(words), given["open_files"], given["locked_memory"]),
            processes=processes,
        )
    return processes


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "task": {"type": "str", "choices": ["apply", "verify", "restore"], "required": True},
            "files": {"type": "dict", "default": {}},
            "aio_requests": {"type": "int", "default": 0},
            "programs": {"type": "list", "elements": "str", "default": []},
            "open_files": {"type": "int", "required": True},
            "locked_memory": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    if module.params["task"] == "verify":
        module.exit_json(changed=False, processes=_verify(module))
    done = _apply(module) if module.params["task"] == "apply" else _restore(module)
    module.exit_json(changed=bool(done), msg="; ".join(done))


if __name__ == "__main__":
    main()
