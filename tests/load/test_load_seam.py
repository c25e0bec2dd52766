"""The parts of the load that need no server: layout, buckets, files, quoting, ends."""

import json
import os
import random
import re
import stat
import subprocess
import zipfile
from pathlib import Path

import pytest

import fleetmark_agent
from fleetmark_agent import histogram, shm, sysbench
from fleetmark_agent.errors import UsageError
from fleetmark_agent.job import Connection, Load, Stream
from fleetmark_agent.lua_text import to_lua

LUA = Path(fleetmark_agent.__file__).parent / "lua"
CONNECTION = Connection("db1", 3306, "fm", "bench")
SUMMARY = "General statistics:\n    total number of events:              800\n"

needs_sysbench = pytest.mark.skipif(sysbench.find() is None, reason="sysbench is not installed")


def run_lua(directory: Path, body: str) -> str:
    """What a Lua chunk prints inside sysbench, whose Lua has no program of its own."""
    script = directory / "chunk.lua"
    script.write_text(
        f"package.path = '{LUA}/?.lua;' .. package.path\n"
        "function event()\n" + body + "\nreturn true\nend\n"
    )
    done = subprocess.run(
        ["sysbench", "--time=0", "--events=1", str(script), "run"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout.split("Threads started!")[1].split("General statistics")[0].strip()


def test_lua_layout_is_the_python_layout() -> None:
    text = (LUA / "shm.lua").read_text()
    in_lua = {name: int(value) for name, value in re.findall(r"^\s+([A-Z_]+) = (\d+),", text, re.M)}
    in_python = {
        name: int(value)
        for name, value in vars(shm).items()
        if isinstance(value, int | float) and re.fullmatch(r"[A-Z_]+", name)
    }
    in_python["BUCKETS"] = histogram.BUCKETS
    del in_python["WORD_BYTES"]
    assert in_lua == in_python


@needs_sysbench
def test_lua_buckets_are_the_python_buckets(tmp_path: Path) -> None:
    draw = random.Random(5)
    values = [0.0, 0.5, 0.999, 1.0, 1.03124, 1.03125, 2.0, 2.0**32 - 1, 2.0**32, 1e15]
    values += [histogram.lower_bound_us(bucket) for bucket in range(histogram.BUCKETS)]
    values += [2.0 ** draw.uniform(-1, 33) for _ in range(5000)]
    (tmp_path / "values.lua").write_text("return " + to_lua(values))
    said = run_lua(
        tmp_path,
        "local shm, out = require('shm'), {}\n"
        f"for i, us in ipairs(dofile('{tmp_path}/values.lua')) do out[i] = shm.bucket_of(us) end\n"
        "print(table.concat(out, ' '))",
    )
    assert [int(word) for word in said.split()] == [histogram.bucket_of(v) for v in values]


@needs_sysbench
def test_lua_reads_back_what_python_quotes(tmp_path: Path) -> None:
    strings = ['"', "\\", "]]", "\n", "\x00 1", "-- x", "ä€", "%d", "'; os.exit(3) --", "a" * 300]
    values = {"strings": strings, "n": [1, -2, 0.1, 1e300, 2**53], "t": {"a b": True, "c": None}}
    (tmp_path / "values.lua").write_text("return " + to_lua(values))
    said = run_lua(
        tmp_path,
        f"local v = dofile('{tmp_path}/values.lua')\n"
        "for _, s in ipairs(v.strings) do print(s:gsub('.', function(c)"
        " return string.format('%02x', c:byte()) end) .. '') end\n"
        "print(#v.n, v.n[2], string.format('%.17g', v.n[3]), v.n[4], v.n[5] == 2 ^ 53,"
        " v.t['a b'], v.t.c)",
    )
    lines = said.splitlines()
    assert [bytes.fromhex(re.sub(r"\s.*", "", x)) for x in lines[:-1]] == [
        s.encode() for s in strings
    ]
    assert lines[-1].split() == ["5", "-2", "0.10000000000000001", "1e+300", "true", "true", "nil"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53 + 1])
def test_numbers_that_lua_cannot_hold_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not a number that Lua can hold"):
        to_lua(value)


@needs_sysbench
def test_prepare_lays_out_the_job(tmp_path: Path) -> None:
    streams = [Stream("insert", 2, "insert", 20.0), Stream("query", 3, "range", defining=False)]
    load = Load("insert_benchmark", CONNECTION, streams, {"seed": 1})
    prepared = sysbench.prepare(load, str(tmp_path), "s3cret")
    assert prepared.threads == 5
    assert prepared.stream_threads == [("insert", range(2)), ("query", range(2, 5))]
    assert prepared.argv[-1] == "run"
    assert "--threads=5" in prepared.argv
    assert not any("s3cret" in word for word in prepared.argv)
    assert "mysql-password=s3cret\n" in (tmp_path / "sysbench.cnf").read_text()
    assert "s3cret" not in (tmp_path / "params.lua").read_text()
    for name in ("sysbench.cnf", "params.lua", "shm"):
        assert stat.S_IMODE(os.stat(tmp_path / name).st_mode) == 0o600
    unpacked = {path.name: path.read_bytes() for path in (tmp_path / "lua").iterdir()}
    assert unpacked == {path.name: path.read_bytes() for path in LUA.glob("*.lua")}
    assert shm.SharedFile(prepared.shm_path).threads == 5


@needs_sysbench
def test_prepare_works_from_a_zip_file(tmp_path: Path) -> None:
    package = Path(fleetmark_agent.__file__).parent
    archive = tmp_path / "agent.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        for path in [*package.glob("*.py"), *LUA.glob("*.lua")]:
            bundle.write(path, path.relative_to(package.parent))
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from fleetmark_agent import sysbench\n"
        "from fleetmark_agent.job import Connection, Load, Stream\n"
        "load = Load('oltp_point_select', Connection('h', 1, 'u', 'd'), [Stream('e', 1, 'event')],"
        " {'table_size': 7, 'skip_trx': True})\n"
        "print(json.dumps([sysbench.__file__, sysbench.prepare(load, sys.argv[2], 'p').argv]))"
    )
    done = subprocess.run(
        ["python3", "-I", "-c", program, str(archive), str(tmp_path)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    source, argv = json.loads(done.stdout)
    assert source.startswith(str(archive))
    assert "--table-size=7" in argv
    assert "--skip-trx=on" in argv
    assert (tmp_path / "lua" / "frame.lua").read_bytes() == (LUA / "frame.lua").read_bytes()


@needs_sysbench
@pytest.mark.parametrize("password", ["two words", "a,b", "line\nbreak"])
def test_passwords_that_sysbench_would_cut_are_refused(tmp_path: Path, password: str) -> None:
    load = Load("insert_benchmark", CONNECTION, [Stream("insert", 1, "insert")])
    with pytest.raises(UsageError, match="cannot take a blank or a comma in mysql-password"):
        sysbench.prepare(load, str(tmp_path), password)


@needs_sysbench
def test_a_script_that_is_not_there_is_named(tmp_path: Path) -> None:
    load = Load("/nowhere/mine.lua", CONNECTION, [Stream("event", 1, "event")])
    with pytest.raises(UsageError, match=r"no Lua script /nowhere/mine\.lua"):
        sysbench.prepare(load, str(tmp_path), "p")


DONE, RUNNING, FAILED = shm.STATE_DONE, shm.STATE_RUNNING, shm.STATE_FAILED


@pytest.mark.parametrize(
    ("end", "klass", "signal", "words", "events"),
    [
        ((0, SUMMARY, [DONE]), "ok", 0, "", 800),
        ((0, "Threads started!\n", [DONE]), "host", 0, "without its summary", None),
        ((0, SUMMARY, [DONE, RUNNING]), "host", 0, "1 threads were not done", 800),
        ((0, SUMMARY, [DONE, FAILED]), "workload", 0, "1 of 2 threads failed", 800),
        ((-11, "FATAL: gone\n", [RUNNING]), "host", 11, "signal 11: gone", None),
        ((139, "", [RUNNING]), "host", 11, "signal 11", None),
        ((-9, "", [RUNNING]), "host", 9, "signal 9", None),
        ((1, "FATAL: `thread_run' function failed: insert thread 0: error 1146: no table\n",
         [FAILED]), "workload", 0, "error 1146: no table", None),
        ((1, "FATAL: mysql_drv_query() returned error 1146 (no table) for query 'x'\n",
         [FAILED]), "workload", 0, "1146 (no table)", None),
        ((1, "invalid option: --tabels=1\n", [0]), "workload", 0, "--tabels", None),
        ((2, "FATAL: Worker threads failed to initialize within 30 seconds!\n",
         [0]), "host", 0, "30 seconds", None),
        ((1, "", [0]), "workload", 0, "exit code 1 and gave no reason", None),
    ],
)  # fmt: skip
def test_ends_are_classified(end, klass, signal, words, events) -> None:
    outcome = sysbench.classify(*end)
    assert (outcome.klass, outcome.signal, outcome.sysbench_events) == (klass, signal, events)
    assert words in outcome.message
    assert outcome.exit_code == end[0]


@needs_sysbench
def test_version_is_a_number() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", sysbench.version() or "")


def test_response_of_an_unlimited_thread_is_its_service(tmp_path: Path) -> None:
    path = str(tmp_path / "shm")
    shared = shm.SharedFile.create(path, 1)
    words = shared._words
    start = shm.HEADER_WORDS
    words[start + shm.S_SERVICE_HISTOGRAM + 40] = 3.0
    words[start + shm.S_SERVICE_MAX_US] = 7.0
    assert shared.slot(0).response == {}
    words[start + shm.S_UNLIMITED] = 1.0
    assert shared.slot(0).response == {40: 3}
    assert shared.slot(0).words[shm.S_RESPONSE_MAX_US] == 7.0
