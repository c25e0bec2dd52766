"""Ansible module: how disks are driven and how they are; NVMe disks say more."""

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, List

from ansible.module_utils import fleetmark_nvme_report as nvme
from ansible.module_utils import fleetmark_queue
from ansible.module_utils import fleetmark_wipe_guard as guard
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.fleetmark_disks import Disk, DiskError, all_disks, choose_all, queue

DOCUMENTATION = r"""
module: fleetmark_nvme
short_description: How disks are driven and how they are
description:
  - Reports firmware, LBA formats, write cache, scheduler, read-ahead and health.
  - Sets scheduler and read-ahead when asked, and writes a udev rule that keeps them.
  - Formats to another block size when asked, after the wipe guard has said yes.
options:
  host: {description: The name that consent uses for this host., type: str, required: true}
  consent: {description: "Disks that may be wiped: host and serial.", type: list, elements: dict}
  choices: {description: The disks., type: list, elements: dict}
  scheduler: {description: I/O scheduler; left alone when empty., type: str}
  read_ahead_kib: {description: Read-ahead; -1 leaves it alone., type: int, default: -1}
  lba_bytes: {description: Block size; 0 leaves it alone., type: int, default: 0}
  rules: {description: The directory of udev rules., type: str, default: /etc/udev/rules.d}
  former: {description: The file that remembers., type: str, required: true}
  task:
    description: >-
      C(apply), C(restore), C(verify) (fails unless all is as asked for), or C(look), which says
      what would become of each disk and never fails for a refusal.
    type: str
    choices: [apply, look, verify, restore]
    default: apply
author: Fleetmark
"""

EXAMPLES = r"""
- name: Report a disk
  fleetmark_nvme:
    host: "{{ inventory_hostname }}"
    choices: [{serial: S5H9NS0N986834}]
    former: /etc/fleetmark/former/disks.json
"""

RETURN = r"""
disks: {description: The disks and what they say., type: list, returned: always}
actions: {description: What was done or would be., type: list, returned: always}
plan:
  description: "For each disk: serial, use, contents, fate and why."
  type: list
  returned: with look
warnings_of_disks: {description: What is wrong with them., type: list, returned: always}
"""


@dataclass(frozen=True)
class Work:
    """One call of the module."""

    given: Dict[str, Any]
    dry: bool

    @property
    def wanted(self) -> Dict[str, Any]:
        """The queue's values that were asked for."""
        read_ahead_kib = self.given["read_ahead_kib"]
        values: Dict[str, Any] = {"scheduler": self.given["scheduler"]}
        values["read_ahead_kib"] = read_ahead_kib if read_ahead_kib >= 0 else None
        return {key: value for key, value in values.items() if value not in (None, "")}

    def tune(self, disk: Disk) -> List[str]:
        """Set scheduler and read-ahead, now and for the next boot."""
        wanted = self.wanted
        if not wanted:
            return []
        fleetmark_queue.check(disk, wanted)
        before = fleetmark_queue.differences(disk, wanted)
        done = ["%s: %s from %s to %s" % (disk.name, k, v, wanted[k]) for k, v in before.items()]
        path = fleetmark_queue.rule_path(self.given["rules"], disk)
        rule = fleetmark_queue.rule(disk, wanted)
        has_rule = fleetmark_queue.read(path) == rule
        if not self.dry and not (has_rule and not before):
            fleetmark_queue.remember(self.given["former"], disk, before)
            fleetmark_queue.put(disk, {key: wanted[key] for key in before})
            fleetmark_queue.write(path, rule)
        return done if has_rule else [*done, "%s: write %s" % (disk.name, path)]

    def format(self, disk: Disk) -> List[str]:
        """Format to the asked block size, if it is another one now."""
        asked = self.given["lba_bytes"]
        now = queue(disk)["logical_block_bytes"]
        if not asked or now == asked:
            return []
        findings = guard.look(disk)
        guard.check(disk, findings, self.given["host"], self.given["consent"])
        if not self.dry:
            guard.check_identity(disk)
            nvme.format_to(disk, asked)
        words = (disk.words, now or 0, asked, findings.words)
        return ["format %s from blocks of %d to %d bytes (was: %s)" % words]

    def fate(self, disk: Disk) -> Dict[str, Any]:
        """What formatting would make of a disk."""
        asked = self.given["lba_bytes"]
        told = {"serial": disk.serial, "use": self.use, "contents": "", "why": "", "fate": "keep"}
        if not asked or queue(disk)["logical_block_bytes"] == asked:
            return {**told, "contents": "blocks of that size"}
        findings = guard.look(disk)
        try:
            guard.check(disk, findings, self.given["host"], self.given["consent"])
            told["fate"] = "wipe" if findings.contents else "format"
        except DiskError as error:
            told.update(fate="refuse", why=str(error))
        return {**told, "contents": findings.words}

    @property
    def use(self) -> str:
        """What the disks are formatted for."""
        return "blocks of %d bytes" % self.given["lba_bytes"]

    def deviations(self, disk: Disk) -> List[str]:
        """What is not as asked for."""
        before = fleetmark_queue.differences(disk, self.wanted)
        found = ["%s is %s, asked for is %s" % (k, v, self.wanted[k]) for k, v in before.items()]
        now = queue(disk)["logical_block_bytes"]
        if self.given["lba_bytes"] not in (0, now):
            found.append("blocks have %s bytes, asked for are %d" % (now, self.given["lba_bytes"]))
        return ["%s: %s" % (disk.words, words) for words in found]

    def restore(self) -> List[str]:
        """Put back what the disks were before our first change, and take our rules away."""
        former = json.loads(fleetmark_queue.read(self.given["former"]) or "{}")
        done = []
        for disk in all_disks():
            values = former.get(disk.serial, {})
            differing = fleetmark_queue.differences(disk, values)
            done += ["%s: %s back to %s" % (disk.name, k, values[k]) for k in differing]
            if differing and not self.dry:
                fleetmark_queue.put(disk, {key: values[key] for key in differing})
            path = fleetmark_queue.rule_path(self.given["rules"], disk)
            if os.path.exists(path):
                done.append("remove %s" % path)
                if not self.dry:
                    os.unlink(path)
        if former and not self.dry:
            os.unlink(self.given["former"])
        return done


def _described(disk: Disk) -> Dict[str, Any]:
    said = nvme.report(disk) if nvme.is_nvme(disk) and nvme.has_tool() else {}
    own = {"name": disk.name, "serial": disk.serial, "model": disk.model}
    return {**own, "firmware": disk.firmware, "size_bytes": disk.size_bytes, **queue(disk), **said}


def _troubles(disks: List[Dict[str, Any]]) -> List[str]:
    """What a person must know: warnings of health, and media errors."""
    found = []
    for disk in disks:
        health = disk.get("health") or {}
        words = list(health.get("warnings") or [])
        if health.get("media_errors"):
            words.append("%s media errors" % health["media_errors"])
        found += ["%s serial %s: %s" % (disk["name"], disk["serial"], each) for each in words]
    return found


def _look(work: Work) -> "list[dict[str, Any]]":
    try:
        return [work.fate(disk) for disk in choose_all(work.given["choices"])]
    except DiskError as error:
        refused = {"serial": "", "fate": "refuse", "contents": "", "why": str(error)}
        return [{**refused, "use": work.use}]


def _run(module: AnsibleModule) -> "dict[str, Any]":
    work = Work(module.params, module.check_mode)
    if work.given["task"] == "restore":
        done = work.restore()
        return {"changed": bool(done), "actions": done, "disks": [], "warnings_of_disks": []}
    if work.given["task"] == "look":
        return {"changed": False, "plan": _look(work)}
    disks = choose_all(work.given["choices"])
    if work.given["task"] == "verify":
        wrong = [words for disk in disks for words in work.deviations(disk)]
        if wrong:
            raise DiskError("; ".join(wrong))
        done = []
    else:
        done = [words for disk in disks for words in work.format(disk) + work.tune(disk)]
    described = [_described(disk) for disk in disks]
    return {
        "changed": bool(done),
        "actions": done,
        "msg": "; ".join(done),
        "disks": described,
        "warnings_of_disks": _troubles(described),
    }


def main() -> None:
    """Run the module."""
    arguments: Dict[str, Any] = {
        "host": {"type": "str", "required": True},
        "consent": {"type": "list", "elements": "dict", "default": []},
        "choices": {"type": "list", "elements": "dict", "default": []},
        "scheduler": {"type": "str", "default": ""},
        "read_ahead_kib": {"type": "int", "default": -1},
        "lba_bytes": {"type": "int", "default": 0},
        "rules": {"type": "str", "default": "/etc/udev/rules.d"},
        "former": {"type": "str", "required": True},
        "task": {
            "type": "str",
            "choices": ["apply", "look", "verify", "restore"],
            "default": "apply",
        },
    }
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True)
    try:
        module.exit_json(**_run(module))
    except DiskError as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
