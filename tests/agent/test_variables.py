"""Whether a variable is in effect, however the two sides write it."""

import pytest

from fleetmark_agent.variables import Kind, as_number, compare, same, variable_name

FLUSH = Kind("ENUM", ("fsync", "O_DSYNC", "littlesync", "nosync", "O_DIRECT"))
NONE = Kind("")


@pytest.mark.parametrize(
    ("asked", "effective", "kind"),
    [
        ("1G", "1073741824", NONE),
        ("64m", "67108864", NONE),
        ("512KB", "524288", NONE),
        ("1", "ON", NONE),
        ("true", "ON", NONE),
        ("", "ON", NONE),
        ("off", "OFF", NONE),
        ("0", "OFF", NONE),
        ("ON", "1", NONE),
        ("0.5", "0.500000", NONE),
        ("4", "O_DIRECT", FLUSH),
        ("o_direct", "O_DIRECT", FLUSH),
        ("'utf8mb4'", "utf8mb4", NONE),
        ("/data/db", "/data/db/", NONE),
        ("./tmp", "/var/lib/x/tmp/", NONE),
        ("ANSI,TRADITIONAL", "TRADITIONAL,ANSI", NONE),
        ("mrr=on", "index_merge=on,mrr=on,mrr_cost_based=off", NONE),
    ],
)
def test_the_same(asked, effective, kind):
    assert same(asked, effective, kind)


@pytest.mark.parametrize(
    ("asked", "effective", "kind"),
    [
        ("1G", "1G1", NONE),
        ("1G", "134217728", NONE),
        ("100", "151", NONE),
        ("1", "OFF", NONE),
        ("0", "ON", NONE),
        ("2", "ON", NONE),
        ("3", "O_DIRECT", FLUSH),
        ("fsync", "O_DIRECT", FLUSH),
        ("/data/db", "/data/other", NONE),
        ("mrr=on", "mrr=off,index_merge=on", NONE),
        ("ANSI,TRADITIONAL", "ANSI", NONE),
        ("5", "", NONE),
    ],
)
def test_not_the_same(asked, effective, kind):
    assert not same(asked, effective, kind)


def test_numbers():
    assert [as_number(text) for text in ("2K", "3", "1.5", "-1", "x", "")] == [
        2048, 3.0, 1.5, -1.0, None, None
    ]  # fmt: skip


def test_names():
    assert variable_name("loose-InnoDB-Buffer-Pool-Size") == "innodb_buffer_pool_size"


def test_options_that_are_variables_under_another_name():
    effective = {"log_bin": "OFF", "innodb_doublewrite": "ON", "skip_name_resolve": "ON"}
    asked = {
        "skip-log-bin": None,
        "skip_innodb_doublewrite": None,
        "skip_name_resolve": None,
        "plugin_load_add": "ha_rocksdb",
    }
    found = compare(asked, effective, {})
    assert found.mismatches == [
        {"name": "skip_innodb_doublewrite", "asked": None, "effective": "ON"}
    ]
    assert found.unchecked == ["plugin_load_add"]


def test_a_number_for_an_enumeration_that_the_server_does_not_list():
    effective = {"innodb_flush_method": "O_DIRECT", "log_bin": "OFF"}
    found = compare({"innodb_flush_method": "4", "log_bin": "1"}, effective, {})
    assert found.unchecked == ["innodb_flush_method"]
    assert [item["name"] for item in found.mismatches] == ["log_bin"]
    known = compare({"innodb_flush_method": "3"}, effective, {"innodb_flush_method": FLUSH})
    assert [item["name"] for item in known.mismatches] == ["innodb_flush_method"]
