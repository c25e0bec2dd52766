"""The experiment file: what is read, and what a mistake is told."""

from pathlib import Path

import pytest

from fleetmark import experiment
from fleetmark.errors import ConfigError

GOOD = """\
fleetmark: 1
name: t
builds:
  - name: pkg
configs:
  - name: base
    set:
      innodb_buffer_pool_size: 1G
      innodb-doublewrite: ON
  - name: patched
    extends: base
    set:
      innodb_doublewrite: OFF
workloads:
  - insert_benchmark:
      profile: tiny
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return path


def message(tmp_path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        experiment.load(write(tmp_path, text))
    return str(caught.value)


def test_good_file_is_read(tmp_path: Path) -> None:
    loaded = experiment.load(write(tmp_path, GOOD)).experiment
    assert [b.flavour for b in loaded.builds] == ["mariadb"]
    assert loaded.workloads[0].label == "insert_benchmark"
    assert loaded.repeats == 1


def test_a_patch_changes_only_what_it_names(tmp_path: Path) -> None:
    loaded = experiment.load(write(tmp_path, GOOD)).experiment
    assert experiment.config_variables(loaded, "patched", tmp_path) == {
        "innodb_buffer_pool_size": "1G",
        "innodb_doublewrite": False,
    }


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("configs:", "config:", 5, "unknown key 'config'; did you mean 'configs'?"),
        (
            "    extends: base",
            "    extend: base",
            11,
            "unknown key 'extend'; did you mean 'extends'?",
        ),
        ("profile: tiny", "profil: tiny", 16, "unknown key 'profil'; did you mean 'profile'?"),
        ("insert_benchmark", "insert_benchmrk", 15, "did you mean 'insert_benchmark'?"),
        ("name: pkg", "name: pkg\n    sauce: package", 5, "did you mean 'source'?"),
        ("profile: tiny", "clients: 0", 16, "greater than or equal to 1"),
        ("extends: base", "extends: bass", 10, "did you mean 'base'?"),
        ("fleetmark: 1", "fleetmark: 2", 1, "Input should be 1"),
    ],
)
def test_a_mistake_names_line_and_remedy(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    text = message(tmp_path, GOOD.replace(old, new, 1))
    matching = [part for part in text.splitlines() if words in part]
    assert matching, text
    if "extends" not in new:
        assert matching[0].startswith(f"{tmp_path}/e.yaml:{line}:"), text


def test_broken_yaml_names_its_line(tmp_path: Path) -> None:
    assert "line 3" in message(tmp_path, "fleetmark: 1\nname: [a\nbuilds: :\n")


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = message(tmp_path, GOOD.replace("profile", "profil") + "repeatz: 2\n")
    assert "'repeats'" in text
    assert "'profile'" in text


def test_a_host_in_two_targets_is_refused(tmp_path: Path) -> None:
    targets = """\
targets:
  - {name: a, db: db1, load: [load1]}
  - {name: b, db: db2, load: [load1]}
"""
    text = message(tmp_path, GOOD + targets)
    assert "host 'load1' is in target 'a' and in target 'b'" in text


def test_names_used_twice_are_refused(tmp_path: Path) -> None:
    text = message(tmp_path, GOOD.replace("name: patched", "name: base"))
    assert "configs: the name 'base' is used twice" in text


def test_a_circle_of_extends_is_refused(tmp_path: Path) -> None:
    text = message(
        tmp_path, GOOD.replace("  - name: base\n", "  - name: base\n    extends: patched\n")
    )
    assert "extends itself" in text


def test_profile_option_beats_the_file(tmp_path: Path) -> None:
    loaded = experiment.load(write(tmp_path, GOOD), profile="cpu_bound").experiment
    steps = loaded.workloads[0].steps(1)
    assert steps[0].loads[0].options["rows_per_client"] == 10_000_000


def test_a_my_cnf_is_read_by_its_server_sections(tmp_path: Path) -> None:
    (tmp_path / "my.cnf").write_text(
        "# comment\n[client]\nport=1\n[mysqld]\nskip-log-bin\nsync_binlog = 1\n"
        "innodb-flush-method='O_DIRECT'\n[mariadb-10.11]\nread_only=ON\n"
    )
    text = GOOD.replace("  - name: base\n", "  - name: base\n    file: my.cnf\n")
    loaded = experiment.load(write(tmp_path, text)).experiment
    variables = experiment.config_variables(loaded, "base", tmp_path)
    assert variables == {
        "skip_log_bin": None,
        "sync_binlog": "1",
        "innodb_flush_method": "O_DIRECT",
        "read_only": "ON",
        "innodb_buffer_pool_size": "1G",
        "innodb_doublewrite": True,
    }
