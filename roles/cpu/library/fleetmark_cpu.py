"""Ansible module: CPU and memory settings of the running kernel."""

import json
import os
import tempfile
from typing import Any, Dict

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.fleetmark_cpu_state import CpuError, Host, absent, apply, differences

DOCUMENTATION = r"""
module: fleetmark_cpu
short_description: CPU and memory settings of the running kernel
description:
  - Sets what is not as wanted. Before the first change of an item its value is written into
    I(former), once. An item that the host does not have is reported as absent.
options:
  wanted: {description: "smt, governor, boost, … with their values.", type: dict}
  former: {description: The file that remembers., type: str, required: true}
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


def _remember(path: str, before: "dict[str, Any]") -> None:
    """Add what is not there yet. Written before the change, so that a crash loses nothing."""
    former = _read(path)
    if set(before) <= set(former):
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w") as file:
        json.dump({**before, **former}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(beside, 0o644)
    os.rename(beside, path)


def _wanted(module: AnsibleModule) -> "dict[str, Any]":
    given = module.params["wanted"] or {}
    return {item: value for item, value in given.items() if value not in (None, "")}


def _run(module: AnsibleModule, host: Host) -> "dict[str, Any]":
    former, task = module.params["former"], module.params["task"]
    wanted = _read(former) if task == "restore" else _wanted(module)
    missing = absent(host, wanted)
    before = differences(host, wanted)
    if task == "verify" and before:
        words = ["%s is %s, asked for is %s" % (i, now, wanted[i]) for i, now in before.items()]
        module.fail_json(msg="; ".join(words), before=before, absent=missing)
    changed = bool(before) or (task == "restore" and bool(wanted))
    if task != "verify" and not module.check_mode:
        if task == "apply":
            _remember(former, before)
        apply(host, wanted)
        if task == "restore" and os.path.exists(former):
            os.unlink(former)
    words = ["%s from %s to %s" % (i, now, wanted[i]) for i, now in before.items()]
    words += ["%s: this host has none" % item for item in missing]
    return {"changed": changed, "before": before, "absent": missing, "msg": "; ".join(words)}


def main() -> None:
    """Run the module."""
    arguments: Dict[str, Any] = {
        "wanted": {"type": "dict", "default": {}},
        "former": {"type": "str", "required": True},
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
