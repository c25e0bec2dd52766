"""Every verb of the agent's zipapp, on the Python that runs this file; see run_on_3_9.sh.

Standard library only: nothing of the tests' own tools is installed there.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

AGENT = sys.argv[1]
sys.path.insert(0, AGENT)

from fleetmark_agent.job import (  # noqa: E402 (the zipapp must be on the path first)
    Connection,
    Dbms,
    Job,
    Load,
    Samplers,
    Settle,
    Stream,
    encode,
)

BASE = tempfile.mkdtemp(prefix="fm-")
os.chmod(BASE, 0o711)
PORT = 13480


def start(*arguments):
    command = [sys.executable, AGENT, "--base", BASE, *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def call(*arguments, code=0):
    process = start(*arguments)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (code, b""), (arguments, out, err)
    print("ok", arguments[0], code)
    return json.loads(out)


def put(step, name, text):
    directory = os.path.join(BASE, "runs", "r1", "t1", step)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    for file, content in ((name, text), ("secret.json", '{"password": "old-python"}')):
        with open(os.path.join(directory, file), "w") as handle:
            os.chmod(handle.fileno(), 0o600)
            handle.write(content)
    return os.path.join(directory, name)


def run_job(job):
    call("arm", put(job.step, "job.json", encode(job)), "--metrics", "")
    place = ("--run", job.run, "--trial", job.trial, "--step", job.step)
    follower = start("follow", *place)
    call("release", *place, "--at", repr(time.time() + 0.3))
    return follower


def instance(config=""):
    return Dbms("r1", "t1", "mariadb", BASE + "/d", PORT, "127.0.0.1", config)


assert sys.version_info[:2] == (3, 9), sys.version
facts = call("facts")
assert facts["python"].startswith("3.9."), facts
assert facts["tools"]["sysbench"] == "1.0.20", facts
assert call("claim", "r1") == {"run": "r1"}
assert call("claim", "r2", code=3)["error"]["kind"] == "host"
assert call("probe", code=2)["error"]["kind"] == "usage"

clock = start("clock")
out, _ = clock.communicate(b"x\n")
received, sent = map(float, out.split())
assert abs(time.time() - sent) < 60
assert received <= sent

call("dbms-check", put("dbms", "dbms.json", encode(instance())))
error = call("dbms-check", put("dbms", "dbms.json", encode(instance("nonsense=1\n"))), code=4)
assert "nonsense" in error["error"]["evidence"], error
server = call("dbms-start", put("dbms", "dbms.json", encode(instance())))
assert server["version"].startswith("10.5."), server["version"]

local = Connection("localhost", PORT, "fleetmark", "fleetmark", server["socket"])
network = Connection("127.0.0.1", PORT, "fleetmark", "fleetmark")
options = {
    "first_client": 1, "clients": 2, "all_clients": 2, "one_table": False, "engine": "innodb",
    "data_length_min": 10, "data_length_max": 20, "seed": 1, "phase": "l.i0",
    "rows_per_client": 5000, "rows_per_commit": 100, "create_table": True,
}  # fmt: skip
load = Load("insert_benchmark", network, [Stream("insert", 2, "insert")], options)
samplers = Samplers(0.2, 0.2, local, server["pid_file"], server["data_dir"])
watching = run_job(Job("r1", "t1", "01-db", "h", samplers, 60.0))
loading = run_job(Job("r1", "t1", "01-load", "h", Samplers(), 60.0, load=load))
records = [json.loads(line) for line in loading.communicate(timeout=60)[0].splitlines()]
assert records[-1]["reason"] == "completed", records[-1]
end = next(r for r in records if r["kind"] == "stream_end")
assert (end["operations"], end["rows"]) == (100, 10000), end
settling = run_job(
    Job("r1", "t1", "02-wait", "h", Samplers(), 60.0, settle=Settle(local, ["pi1"], 0.5))
)
records = [json.loads(line) for line in settling.communicate(timeout=60)[0].splitlines()]
assert records[-1]["reason"] == "completed", records[-1]
assert call("stop", "--run", "r1") == {"stopped": ["01-db"]}
records = [json.loads(line) for line in watching.communicate(timeout=60)[0].splitlines()]
assert sum(r["status"]["Com_insert"] for r in records if r["kind"] == "dbms") == 100
states = {job["step"]: job["state"] for job in call("status")["jobs"]}
assert states == {"01-db": "ended", "01-load": "ended", "02-wait": "ended"}, states
assert call("dbms-stop", "--run", "r1", "--trial", "t1")["clean"] is True
assert call("clean", "--run", "r1") == {"stopped": [], "removed": True}
print("every verb works on Python", sys.version.split()[0])
