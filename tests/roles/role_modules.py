"""Lets tests import what roles run on hosts, under the names that it has there."""

from pathlib import Path

import ansible.module_utils

ROLES = Path(__file__).parents[2] / "roles"

for directory in sorted(ROLES.glob("*/module_utils")):
    if str(directory) not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(str(directory))
