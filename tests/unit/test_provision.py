"""Events of Ansible -> status, progress and what is kept. Pure; no host is touched."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

import fleetmark
from fleetmark import provision
from fleetmark.bundle import Bundle
from fleetmark.errors import ConfigError, HostError, InfrastructureError
from fleetmark.provision import HostProgress, HostStatus, ProvisionResult
from fleetmark.provision.events import Recorder, explain


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"event": kind, "counter": 1, "created": "2026-01-01T00:00:00", "event_data": data}


def recorder(*hosts: str) -> tuple[Recorder, io.StringIO, list[HostProgress]]:
    lines, seen = io.StringIO(), list[HostProgress]()
    return Recorder(list(hosts), lines, seen.append), lines, seen


def test_only_chosen_fields_are_kept() -> None:
    listener, lines, _ = recorder("a")
    result = {
        "changed": True,
        "msg": "done",
        "invocation": {"module_args": {"password": "geheim"}},
        "ansible_facts": {"secret": "geheim"},
        "results": [{"item": "x", "msg": "m", "invocation": {"p": "geheim"}}],
    }
    kept = listener.handle(
        event("runner_on_ok", host="a", task="T", task_args="p=geheim", res=result)
    )
    assert kept is False, "ansible-runner must not keep its own copy"
    assert "geheim" not in lines.getvalue()
    assert json.loads(lines.getvalue()) == {
        "counter": 1,
        "created": "2026-01-01T00:00:00",
        "event": "runner_on_ok",
        "task": "T",
        "host": "a",
        "result": {"changed": True, "msg": "done", "results": [{"item": "x", "msg": "m"}]},
    }


def test_a_censored_result_stays_censored() -> None:
    listener, lines, _ = recorder("a")
    result = {"censored": "hidden due to no_log", "changed": False, "msg": "geheim", "results": []}
    listener.handle(event("runner_on_failed", host="a", task="T", res=result))
    stored = json.loads(lines.getvalue())["result"]
    assert stored == {"censored": "hidden due to no_log", "changed": False}
    assert listener.hosts()["a"].message == "its output is hidden, since it may hold a secret"


def test_status_and_progress_of_each_host() -> None:
    listener, _, seen = recorder("good", "bad", "gone", "absent", "rescued")
    for data in (
        event("runner_on_ok", host="good", task="One", res={"changed": True}),
        event("runner_on_failed", host="bad", task="One", res={"msg": "no space"}),
        event("runner_on_unreachable", host="gone", task="One", res={"msg": "x", "unreachable": 1}),
        event("runner_on_failed", host="rescued", task="One", res={"msg": "not so bad"}),
        event("runner_on_failed", host="good", task="Two", ignore_errors=True, res={"msg": "y"}),
        event("runner_on_skipped", host="good", task="Three", res={"skipped": True}),
        event(
            "playbook_on_stats",
            ok={"good": 2, "rescued": 1},
            changed={"good": 1},
            failures={"bad": 1},
            dark={"gone": 1},
            skipped={"good": 1},
        ),
    ):
        listener.handle(data)
    hosts = listener.hosts()
    assert hosts["good"] == HostStatus(ok=2, changed=1, skipped=1)
    assert hosts["bad"] == HostStatus(failures=1, failed_task="One", message="no space")
    assert hosts["gone"] == HostStatus(unreachable=1, failed_task="One", message="x")
    assert hosts["rescued"] == HostStatus(ok=1)
    assert "did nothing on this host" in hosts["absent"].message
    assert [n for n, h in hosts.items() if h.ready] == ["good", "rescued"]
    assert [(p.host, p.outcome, p.tasks_done) for p in seen] == [
        ("good", "changed", 1),
        ("bad", "failed", 1),
        ("gone", "unreachable", 1),
        ("rescued", "failed", 1),
        ("good", "failed", 2),
        ("good", "skipped", 3),
    ]


def test_a_host_that_was_cut_off_is_not_ready() -> None:
    listener, _, _ = recorder("a")
    listener.handle(event("runner_on_ok", host="a", task="One", res={}))
    assert not listener.hosts()["a"].ready


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (
            {"unreachable": True, "msg": "@@@ REMOTE HOST IDENTIFICATION HAS CHANGED! @@@"},
            "host key is not the one on record",
        ),
        (
            {"unreachable": True, "msg": "Host key verification failed."},
            "host key is not on record",
        ),
        (
            {"unreachable": True, "msg": "root@h: Permission denied (publickey)."},
            "refuses the login",
        ),
        ({"unreachable": True, "msg": "port 22: Connection timed out"}, "does not answer"),
        ({"failed": True, "msg": "the load timed out"}, "the load timed out"),
        (
            {
                "msg": "One or more items failed",
                "results": [{"failed": 1, "item": "x", "msg": "m"}],
            },
            "x: m",
        ),
        (
            {
                "msg": "non-zero return code",
                "rc": 3,
                "stdout": '{"error": {"message": "too old", "evidence": "3.8"}}',
            },
            "too old 3.8",
        ),
        (
            {"msg": "non-zero return code", "rc": 1, "stdout": "", "stderr": "a\nImportError: b"},
            "exit code 1: ImportError: b",
        ),
        ({"msg": "non-zero return code", "rc": 9, "stdout": "[1]"}, "exit code 9: it said nothing"),
        ({}, "no reason was given"),
    ],
)
def test_reasons_in_plain_words(result: dict[str, Any], words: str) -> None:
    assert words in explain(result)


def test_one_bad_host_is_a_host_error_and_several_are_listed() -> None:
    bad = HostStatus(failures=1, failed_task="Copy", message="no space")
    gone = HostStatus(unreachable=1, failed_task="Ask", message="refused")
    ProvisionResult("successful", {"a": HostStatus(ok=1)}, 1.0).require_all()
    with pytest.raises(HostError, match="b: Copy: no space"):
        ProvisionResult("failed", {"a": HostStatus(ok=1), "b": bad}, 1.0).require_all()
    with pytest.raises(InfrastructureError, match="2 of 3 hosts are not ready: b, c") as caught:
        ProvisionResult("failed", {"a": HostStatus(), "b": bad, "c": gone}, 1.0).require_all()
    assert caught.value.evidence == "b: Copy: no space\nc: Ask: refused"


def test_no_hosts_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no host"):
        provision.run(provision.Provisioning(tmp_path, [], tmp_path / "p"))
    assert not (tmp_path / "p").exists()


def test_the_variables_of_the_playbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = provision.variables(Bundle(Path("a.pyz"), "ab"), ["d"], ["mysql-server"], Path("f"))
    assert found == {
        "provision_agent_zipapp": f"{tmp_path}/a.pyz",
        "provision_agent_sha256": "ab",
        "provision_db_hosts": ["d"],
        "provision_dbms_packages": ["mysql-server"],
        "provision_facts_directory": f"{tmp_path}/f",
    }


def test_the_content_is_the_packaged_one_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = Path(__file__).parents[2]
    assert provision.ansible_content() in (
        checkout,
        Path(fleetmark.__file__).parent / "_ansible",
    )
    package = tmp_path / "site" / "fleetmark"
    for name in ("playbooks", "roles"):
        (package / "_ansible" / name).mkdir(parents=True)
    monkeypatch.setattr(fleetmark, "__file__", os.fspath(package / "__init__.py"))
    assert provision.ansible_content() == package / "_ansible"
    (package / "_ansible" / "roles").rmdir()
    with pytest.raises(InfrastructureError, match="not part of this installation"):
        provision.ansible_content()
