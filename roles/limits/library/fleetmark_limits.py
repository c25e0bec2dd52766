"""Ansible module: the limits of this session and of programs that run, read from /proc."""

import os
import re
from typing import Any, Dict, List, Mapping

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: fleetmark_limits
short_description: The limits of this session and of programs that run
description: Fails for a process that may have less than asked for. Changes nothing.
options:
  programs: {description: Names of programs., type: list, elements: str}
  open_files: {description: Files that a process may have open., type: int, required: true}
  locked_memory: {description: KiB that a process may lock or unlimited., type: str, required: true}
author: Fleetmark
"""

EXAMPLES = r"""
- name: Check the limits
  fleetmark_limits: {programs: [mariadbd], open_files: 65536, locked_memory: unlimited}
"""

RETURN = r"""
processes: {description: "Name, pid, open_files and locked_memory.", type: list, returned: always}
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


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "programs": {"type": "list", "elements": "str", "default": []},
            "open_files": {"type": "int", "required": True},
            "locked_memory": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
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
    module.exit_json(changed=False, processes=processes)


if __name__ == "__main__":
    main()
