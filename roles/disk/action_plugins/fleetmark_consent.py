"""Ansible action: the disks that the user said may be wiped.

They are read from the variable `confirm_wipe` of the command line (`-e`) and from nowhere else:
an inventory or a group's variables could otherwise give consent for disks that nobody thought of.
"""

from typing import Any, Dict, List, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars


class ActionModule(ActionBase):
    """Returns `confirm_wipe`, a list of {host, serial}."""

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        """Read the consent on the controller; nothing runs on the host."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        given = load_extra_vars(self._loader).get("confirm_wipe", [])
        if not _is_consent(given):
            raise AnsibleActionFail(
                "confirm_wipe is a list of {host, serial}, for instance"
                " [{'host': 'db1', 'serial': 'S5H9NS0N986834'}]; got %r" % (given,)
            )
        result.update(changed=False, confirm_wipe=_plain(given))
        return result


def _is_consent(given: Any) -> bool:
    return isinstance(given, list) and all(
        isinstance(each, dict) and set(each) == {"host", "serial"} and all(each.values())
        for each in given
    )


def _plain(given: List[Dict[str, Any]]) -> List[Dict[str, str]]:
    return [{key: str(value) for key, value in each.items()} for each in given]
