"""One host builds, an equal one takes the build: the role on two light hosts, over real SSH."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from light_hosts import LightFleet

from fleetmark import provision
from fleetmark.provision import Provisioning, ProvisionResult

pytestmark = pytest.mark.fleet
SOURCE = Path(__file__).parents[1] / "roles" / "files" / "standin"


def test_equal_hosts_share_one_build(
    new_light_lab: Callable[[int, int], LightFleet], tmp_path: Path
) -> None:
    missing = [name for name in ("cmake", "c++", "tar") if not shutil.which(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    archive = tmp_path / "standin.tar.gz"
    command = ["tar", "-C", str(SOURCE.parent), "-czf", str(archive), SOURCE.name]
    subprocess.run(command, check=True)
    said = subprocess.run(["sha256sum", str(archive)], capture_output=True, text=True, check=True)
    lab = new_light_lab(2, 0)
    build = {
        "source": "archive",
        "flavour": "mariadb",
        "version": "1.2.3",
        "archive": str(archive),
        "sha256": said.stdout.split()[0],
        "build_on": "first",
        "record": "shared",
    }
    variables = {
        "provision_builds": [build],
        "dbms_build_packages": [],
        "dbms_build_needed_bytes": 10_000_000,
        "dbms_build_controller_dir": str(tmp_path / "on-its-way"),
    }

    def apply() -> ProvisionResult:
        hosts = list(lab.fleet.hosts)
        work = Provisioning(
            lab.inventory, hosts, tmp_path / "evidence", variables, playbook="build.yml"
        )
        result = provision.run(work)
        result.require_all()
        return result

    apply()
    record = "cat /var/lib/fleetmark/builds/records/shared.json"
    made, copied = (json.loads(lab.ssh(host, record)) for host in ("db1", "db2"))
    assert copied == {**made, "copied_from": "db1"}
    server = f"{copied['prefix']}/{copied['server']} --no-defaults --version"
    assert lab.ssh("db2", server) == lab.ssh("db1", server)
    assert lab.ssh("db2", "ls /var/lib/fleetmark/builds/making 2>/dev/null | wc -l") == "1"
    assert lab.ssh("db2", "ls /var/lib/fleetmark/builds/making/*") == "", "nothing was built there"

    again = apply()
    assert [host.changed for host in again.hosts.values()] == [0, 0]
