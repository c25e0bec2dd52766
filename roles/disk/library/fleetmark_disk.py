"""Ansible module: the disks of a host, how they are driven, and what is on them."""

from ansible.module_utils import fleetmark_disks, fleetmark_wipe_guard
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: fleetmark_disk
short_description: The disks of a host, how they are driven, and what is on them
description: Changes nothing.
options:
  choices:
    description: >-
      Which disks; each is found by C(serial), C(model) (shell wildcards) or C(size_bytes) (within
      1 %), and C(count) (1) disks must match. All disks when empty.
    type: list
    elements: dict
    default: []
author: Fleetmark
"""

EXAMPLES = r"""
- name: Look at a disk
  fleetmark_disk:
    choices: [{serial: S5H9NS0N986834}]
"""

RETURN = r"""
disks:
  description: >-
    The disks: name, device, serial, model, firmware, size_bytes, in_use, contents (lists of words;
    both empty for an empty disk), queue.
  type: list
  returned: always
"""


def _described(disk: fleetmark_disks.Disk) -> "dict[str, object]":
    findings = fleetmark_wipe_guard.look(disk)
    return {
        "name": disk.name,
        "device": disk.device,
        "serial": disk.serial,
        "model": disk.model,
        "firmware": disk.firmware,
        "size_bytes": disk.size_bytes,
        "in_use": findings.in_use,
        "contents": findings.contents,
        "queue": fleetmark_disks.queue(disk),
    }


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"choices": {"type": "list", "elements": "dict", "default": []}},
        supports_check_mode=True,
    )
    choices = module.params["choices"]
    try:
        disks = fleetmark_disks.choose_all(choices) if choices else fleetmark_disks.all_disks()
    except fleetmark_disks.DiskError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, disks=[_described(disk) for disk in disks])


if __name__ == "__main__":
    main()
