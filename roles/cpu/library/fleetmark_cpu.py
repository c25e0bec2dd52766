"""Ansible module: CPU and memory settings of the running kernel."""

import json
import os
import tempfile
from typing import Any, Dict, List

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.fleetmark_cpu_state import CpuError, Host, absent, apply, differences

DOCUMENTATION = r"""
module: fleetmark_cpu
short_description: CPU and memory settings of the running kernel
description:
  - Sets what is not as wanted. Before the first change of an item its value is written into
    I(former), once. An item that the host does not have is reported as absent.
  - Writes I(files) (path and content) and I(links) (path and target), by which a boot unit sets it
    again; C(restore) removes them. They are left out on a host without systemd.
options:
  wanted: {description: "smt, governor, boost, … with their values.", type: dict}
  former: {description: The file that remembers., type: str, required: true}
  files: {description: Files with their contents., type: dict}
  links: {description: Symbolic links with their targets., type: dict}
  root: {description: Where /sys and /proc are., type: str, default: /}
  task:
    description: C(apply), C(verify) (fails unless all is as wanted), or C(restore).
    type: str
    choices: [apply, verify, restore]
    default: apply
author: Fleetmark
"""

EXAMPLES = r"""
- name: Switch SMT off
  fleetmark_cpu:
    wanted: {smt: "off"}
    former: /etc/fleetmark/former/cpu.json
"""

RETURN = r"""
before: {description: The items that were not as wanted., type: dict, returned: always}
absent: {description: The items that the host does not have., type: list, returned: always}
"""


def _read(path: str) -> "dict[str, Any]":
    try:
        with open(path, encoding="utf-8") as handle:
            return dict(json.load(handle))
    except FileNotFoundError:
        return {}


def _write(path: str, content: str) -> None:
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(beside, 0o644)
    os.rename(beside, path)


def _remember(path: str, before: "dict[str, Any]") -> None:
    """Add what is not there yet. Written before the change, so that a crash loses nothing."""
    former = _read(path)
    if not set(before) <= set(former):
        _write(path, json.dumps({**before, **former}, indent=1) + "\n")


def _wanted(module: AnsibleModule) -> "dict[str, Any]":
    given = module.params["wanted"] or {}
    return {item: value for item, value in given.items() if value not in (None, "")}


def _persist(module: AnsibleModule) -> "list[str]":
    """Write what the next boot needs; the paths that were not as they must be."""
    if not os.path.isdir("/run/systemd/system"):
        return []
    files, links = module.params["files"], module.params["links"]
    wrong = [path for path, content in files.items() if _text(path) != content]
    wrong += [path for path, target in links.items() if _target(path) != target]
    if not module.check_mode:
        for path in wrong:
            if path in files:
                _write(path, files[path])
            else:
                os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
                if os.path.lexists(path):
                    os.unlink(path)
                os.symlink(links[path], path)
    return wrong


def _unpersist(module: AnsibleModule) -> "list[str]":
    there = [p for p in (*module.params["links"], *module.params["files"]) if os.path.lexists(p)]
    if not module.check_mode:
        for path in there:
            os.unlink(path)
    return there


def _text(path: str) -> "str | None":
    try:
        with open(path, encoding="utf-8") as handle:
            return handle.read()
    except OSError:
        return None


def _target(path: str) -> "str | None":
    return os.readlink(path) if os.path.islink(path) else None


def _run(module: AnsibleModule, host: Host) -> "dict[str, Any]":
    former, task = module.params["former"], module.params["task"]
    wanted = _read(former) if task == "restore" else _wanted(module)
    missing = absent(host, wanted)
    before = differences(host, wanted)
    if task == "verify" and before:
        words = ["%s is %s, asked for is %s" % (i, now, wanted[i]) for i, now in before.items()]
        module.fail_json(msg="; ".join(words), before=before, absent=missing)
    files: List[str] = []
    if task == "apply":
        if not module.check_mode:
            _remember(former, before)
            apply(host, wanted)
        files = _persist(module)
    if task == "restore":
        if not module.check_mode:
            apply(host, wanted)
        files = _unpersist(module)
        if os.path.exists(former):
            files.append(former)
            if not module.check_mode:
                os.unlink(former)
    words = ["%s from %s to %s" % (i, now, wanted[i]) for i, now in before.items()]
    words += ["%s: this host has none" % item for item in missing]
    words += ["%s %s" % ("remove" if task == "restore" else "write", path) for path in files]
    return {
        "changed": bool(before or files),
        "before": before,
        "absent": missing,
        "msg": "; ".join(words),
    }


def main() -> None:
    """Run the module."""
    arguments: Dict[str, Any] = {
        "wanted": {"type": "dict", "default": {}},
        "former": {"type": "str", "required": True},
        "files": {"type": "dict", "default": {}},
        "links": {"type": "dict", "default": {}},
        "root": {"type": "str", "default": "/"},
        "task": {"type": "str", "choices": ["apply", "verify", "restore"], "default": "apply"},
    }
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True)
    try:
        module.exit_json(**_run(module, Host(module.params["root"])))
    except CpuError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
