"""Ansible module: a file system on disks that are named by what they are, mounted by UUID."""

from typing import Any, Dict

from ansible.module_utils import fleetmark_format
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.fleetmark_disks import DiskError

DOCUMENTATION = r"""
module: fleetmark_filesystem
short_description: A file system on disks that are named by what they are, mounted by UUID
description:
  - Leaves a file system alone that is as asked for already.
  - Refuses any disk that is in use, and any that is not empty and not named in I(consent).
options:
  host: {description: The name that consent uses for this host., type: str, required: true}
  consent: {description: "Disks that may be wiped: host and serial.", type: list, elements: dict}
  choices: {description: The disks., type: list, elements: dict, required: true}
  mount: {description: Where it is mounted., type: str, required: true}
  filesystem: {description: Its type., type: str, choices: [ext4, xfs], default: ext4}
  raid: {description: md level over the disks., type: str, default: none}
  lvm: {description: A logical volume below it., type: bool, default: false}
  label: {description: Its label., type: str, default: fleetmark}
  mkfs_options: {description: More words for mkfs., type: list, elements: str}
  mount_options: {description: Options of the mount., type: list, elements: str}
  owner: {description: Who owns its root directory; left as it is when empty., type: str}
  fstab: {description: The table to write into., type: str, default: /etc/fstab}
  records: {description: Where we note how we made it., type: str}
  task:
    description: >-
      C(apply); C(look), which says what would become of each disk and never fails for a refusal;
      C(verify), which fails unless all is as asked for. Both of these change nothing.
    type: str
    choices: [apply, look, verify]
    default: apply
author: Fleetmark
"""

EXAMPLES = r"""
- name: Make a file system
  fleetmark_filesystem:
    host: "{{ inventory_hostname }}"
    choices: [{serial: S5H9NS0N986834}]
    mount: /data
"""

RETURN = r"""
actions: {description: What was done or would be., type: list, returned: with apply}
plan:
  description: "For each disk: serial, model, size_bytes, use, contents, fate and why."
  type: list
  returned: always
state: {description: The file system as it is now., type: dict, returned: always}
"""

_ARGUMENTS: Dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "consent": {"type": "list", "elements": "dict", "default": []},
    "choices": {"type": "list", "elements": "dict", "required": True},
    "mount": {"type": "str", "required": True},
    "filesystem": {"type": "str", "choices": ["ext4", "xfs"], "default": "ext4"},
    "raid": {"type": "str", "choices": ["none", "0", "1", "10"], "default": "none"},
    "lvm": {"type": "bool", "default": False},
    "label": {"type": "str", "default": "fleetmark"},
    "mkfs_options": {"type": "list", "elements": "str", "default": []},
    "mount_options": {"type": "list", "elements": "str", "default": []},
    "owner": {"type": "str", "default": ""},
    "fstab": {"type": "str", "default": "/etc/fstab"},
    "records": {"type": "str", "default": "/etc/fleetmark/filesystems"},
    "task": {"type": "str", "choices": ["apply", "look", "verify"], "default": "apply"},
}
_OF_THE_CALL = ("host", "consent", "task")


def _plan(
    wanted: fleetmark_format.Wanted, decision: fleetmark_format.Decision
) -> "list[dict[str, object]]":
    return [
        {
            "use": _use(wanted),
            "serial": disk.serial,
            "device": disk.device,
            "model": disk.model,
            "size_bytes": disk.size_bytes,
            "fate": decision.fate(disk),
            "contents": (
                decision.findings[disk.name].words
                if disk.name in decision.findings
                else "the file system asked for"
            ),
            "why": decision.refusal,
        }
        for disk in decision.volume.disks
    ]


def _use(wanted: fleetmark_format.Wanted) -> str:
    return "%s at %s" % (wanted.filesystem, wanted.mount)


def _deviations(wanted: fleetmark_format.Wanted, state: "dict[str, Any]") -> "list[str]":
    found = []
    if not state["mounted"]:
        found.append("%s is not mounted" % wanted.mount)
    found += ["mount option %s is not in effect" % each for each in state["missing_options"]]
    if state["fstab"][:1] != ["UUID=%s" % state["uuid"]]:
        found.append("%s does not mount it by its UUID" % wanted.fstab)
    return found


def main() -> None:
    """Run the module."""
    module = AnsibleModule(argument_spec=_ARGUMENTS, supports_check_mode=True)
    given = {key: value for key, value in module.params.items() if key not in _OF_THE_CALL}
    wanted = fleetmark_format.Wanted(**given)
    host, consent, task = (module.params[key] for key in _OF_THE_CALL)
    try:
        decision = fleetmark_format.decide(wanted, host, consent)
        if task == "apply":
            dry = module.check_mode
            done = fleetmark_format.apply(wanted, decision, dry)
            device = fleetmark_format.decide(wanted, host, consent).device
            state = fleetmark_format.state(wanted, device)
            words = "; ".join(done) or "%s is as asked for" % wanted.mount
            module.exit_json(
                changed=bool(done),
                msg=words,
                actions=done,
                plan=_plan(wanted, decision),
                state=state,
            )
        state = fleetmark_format.state(wanted, decision.device)
        wrong = _deviations(wanted, state) if task == "verify" else []
        if task == "verify" and decision.format:
            wrong = [decision.refusal or "there is no such file system"]
        if wrong:
            module.fail_json(msg="%s: %s" % (wanted.mount, "; ".join(wrong)), state=state)
        module.exit_json(changed=False, plan=_plan(wanted, decision), state=state)
    except DiskError as error:
        if task == "look":
            refused = {"serial": "", "fate": "refuse", "contents": "", "why": str(error)}
            module.exit_json(changed=False, plan=[{**refused, "use": _use(wanted)}], state={})
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
