"""A config over the facts of a host."""

import pytest

from fleetmark.conduct.render import render
from fleetmark.errors import ConfigError
from fleetmark.experiment import Scalar
from fleetmark.plan import PlannedConfig

FACTS = {"memory_bytes": 8_000_000_000, "cpu": {"logical": 16}}


def test_kinds_of_values() -> None:
    done = render(
        PlannedConfig(
            "c",
            {
                "innodb_doublewrite": False,
                "innodb_file_per_table": True,
                "max_connections": 200,
                "innodb_max_dirty_pages_pct": 1.5,
                "innodb_buffer_pool_size": "{{ (memory_bytes * 0.5) | int }}",
                "innodb_read_io_threads": "{{ cpu.logical }}",
                "innodb_log_file_size": "256M",
                "skip_log_bin": None,
            },
        ),
        FACTS,
    )
    assert done.text == (
        "innodb_doublewrite = OFF\n"
        "innodb_file_per_table = ON\n"
        "max_connections = 200\n"
        "innodb_max_dirty_pages_pct = 1.5\n"
        "innodb_buffer_pool_size = 4000000000\n"
        "innodb_read_io_threads = 16\n"
        "innodb_log_file_size = 256M\n"
        "skip_log_bin\n"
    )
    assert done.expected["innodb_buffer_pool_size"] == "4000000000"
    assert "skip_log_bin" not in done.expected


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{{ memory_byte }}", "'memory_byte' is undefined"),
        ("{{ memory_bytes / 0 }}", "division by zero"),
        ("{{ memory_bytes", "end of print statement"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("1\n2", "more than one line"),
    ],
)
def test_what_cannot_be_rendered_names_config_and_variable(value: Scalar, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        render(PlannedConfig("dw1", {"innodb_buffer_pool_size": value}), FACTS)
    assert "'dw1'" in caught.value.message
    assert "innodb_buffer_pool_size" in caught.value.message
