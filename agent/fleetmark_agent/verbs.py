"""The agent's command line. One verb, one function; each imports what it needs when it runs,
since a zipapp compiles its modules at every start.
"""

import argparse
import json
import os
import sys
from typing import Any, Callable, Dict, List, NoReturn, Optional

from fleetmark_agent.errors import AgentError, UsageError
from fleetmark_agent.spool import Spool

DEFAULT_BASE = "/var/lib/fleetmark"
DEFAULT_METRICS = "127.0.0.1:9517"

Arguments = argparse.Namespace
Answer = Optional[Dict[str, Any]]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, evidence=self.format_usage().strip())


def _claim(store: Spool, arguments: Arguments) -> Answer:
    store.claim(arguments.name, arguments.by)
    return {"run": arguments.name}


def _arm(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import jobs

    return jobs.arm(store, arguments.file, arguments.metrics)


def _supervise(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent.supervise import supervise

    supervise(store.job(arguments.run, arguments.trial, arguments.step), arguments.metrics)
    return None


def _release(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import jobs

    place = store.job(arguments.run, arguments.trial, arguments.step)
    return dict(jobs.release(place, arguments.at))


def _stop(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import jobs

    places = store.jobs(arguments.run)
    if arguments.trial is not None:
        places = [place for place in places if place.trial == arguments.trial]
    if arguments.step is not None:
        places = [place for place in places if place.step == arguments.step]
    return dict(jobs.stop(places))


def _status(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import instance, jobs

    runs = store.runs() if arguments.run is None else [arguments.run]
    return {
        "claim": store.claimed_by(),
        "jobs": [jobs.describe(place) for run in runs for place in store.jobs(run)],
        "dbms": [instance.describe(path) for run in runs for path in store.instances(run)],
    }


def _follow(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import jobs

    place = store.job(arguments.run, arguments.trial, arguments.step)
    jobs.follow(place, arguments.offset, sys.stdout.buffer)
    return None


def _clock(_store: Spool, _arguments: Arguments) -> Answer:
    from fleetmark_agent import clock

    clock.answer()
    return None


def _facts(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import facts

    return facts.collect(store, arguments.data_dir)


def _dbms_check(_store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import dbms

    return dbms.check(dbms.read_dbms(arguments.file))


def _dbms_start(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import dbms

    return dbms.start(store, arguments.file)


def _dbms_stop(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import instance

    return instance.stop(store.instance_path(arguments.run, arguments.trial))


def _clean(store: Spool, arguments: Arguments) -> Answer:
    from fleetmark_agent import instance, jobs

    stopped = [place.step for place in store.jobs(arguments.run) if jobs.end_leftovers(place)]
    for path in store.instances(arguments.run):
        if instance.end_leftovers(path):
            stopped.append(os.path.basename(os.path.dirname(path)))
    removed = False if arguments.keep_files else store.delete_run(arguments.run)
    store.free(arguments.run)
    return {"stopped": stopped, "removed": removed}


def _probe(_store: Spool, _arguments: Arguments) -> Answer:
    raise UsageError("this agent has no sync-write probe")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="fleetmark-agent", description="Runs one host's part of a run.")
    parser.add_argument("--base", default=DEFAULT_BASE, help="directory of all files")
    verbs = parser.add_subparsers(dest="verb", required=True, parser_class=_Parser)

    def verb(name: str, run: Callable[[Spool, Arguments], Answer], text: str) -> Any:
        sub = verbs.add_parser(name, help=text, description=text)
        sub.set_defaults(run_verb=run)
        return sub

    def job_options(sub: Any) -> None:
        for option in ("--run", "--trial", "--step"):
            sub.add_argument(option, required=True)

    claim = verb("claim", _claim, "Take this host for a run.")
    claim.add_argument("name", metavar="RUN")
    claim.add_argument("--by", default="", help="who runs it, for the one who finds it busy")
    arm = verb("arm", _arm, "Start a job up to its barrier.")
    arm.add_argument("file", metavar="JOB.json")
    supervise = verb("supervise", _supervise, "Be the supervisor of a job (arm starts it).")
    job_options(supervise)
    for sub in (arm, supervise):
        sub.add_argument(
            "--metrics", default=DEFAULT_METRICS, help="host:port for Prometheus, empty for none"
        )
    release = verb("release", _release, "Set the release time of a ready job.")
    job_options(release)
    release.add_argument("--at", type=float, required=True, help="seconds, this host's clock")
    stop = verb("stop", _stop, "Ask jobs to end, and wait.")
    stop.add_argument("--run", required=True)
    stop.add_argument("--trial")
    stop.add_argument("--step")
    status = verb("status", _status, "What runs here.")
    status.add_argument("--run")
    follow = verb("follow", _follow, "The journal from an offset until the job ends.")
    job_options(follow)
    follow.add_argument("--from", dest="offset", type=int, default=0)
    verb("clock", _clock, "Answer each line with the time.")
    facts = verb("facts", _facts, "What this host is.")
    facts.add_argument("--data-dir", default="", help="where instances keep their data")
    for name, run, text in (
        ("dbms-check", _dbms_check, "Ask the server whether it knows every variable."),
        ("dbms-start", _dbms_start, "Start a fresh instance."),
    ):
        verb(name, run, text).add_argument("file", metavar="DBMS.json")
    dbms_stop = verb("dbms-stop", _dbms_stop, "Stop an instance and delete its data.")
    dbms_stop.add_argument("--run", required=True)
    dbms_stop.add_argument("--trial", required=True)
    clean = verb("clean", _clean, "End what is left of a run and free the host.")
    clean.add_argument("--run", required=True)
    clean.add_argument("--keep-files", action="store_true")
    verb("probe", _probe, "Sync-write probe.")
    return parser


def run(argv: List[str]) -> int:
    """Run one verb; prints its JSON document and returns the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        answer = arguments.run_verb(Spool(os.path.abspath(arguments.base)), arguments)
    except AgentError as error:
        print(json.dumps(error.to_json(), sort_keys=True))
        return error.exit_code
    except BrokenPipeError:
        # The reader of follow or clock is gone; nothing is left to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        wrapped = AgentError("the operating system refused: %s" % error)
        print(json.dumps(wrapped.to_json(), sort_keys=True))
        return wrapped.exit_code
    if answer is not None:
        print(json.dumps(answer, sort_keys=True))
    return 0
