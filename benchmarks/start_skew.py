"""How far apart two load hosts start: first events of one step on both, over 30 releases.

Two light hosts with the real agent and sysbench; T0 travels over SSH and by measured clock
offsets, as in every run. The hosts share this machine's clock, so what is left is what the
coordination itself adds. A ratio is that of the median, and of the worst, to its limit.
"""

import dataclasses
import itertools
import secrets
import statistics
import sys
import tempfile
import threading
from pathlib import Path

from _measured import Measured, answer

from fleetmark import bundle, channel, conduct, experiment, inventory, lab, plan, store
from fleetmark.conduct import Conduct, Patience
from fleetmark.plan import Plan
from fleetmark.workloads import Step

RELEASES = 30
MEDIAN_LIMIT_SECONDS = 0.001
WORST_LIMIT_SECONDS = 0.005
LEAD_SECONDS = 0.5

EXPERIMENT = """\
fleetmark: 1
name: start-skew
builds: [{name: mariadb}]
configs: [{name: base, set: {innodb_flush_log_at_trx_commit: 0, skip_name_resolve: null}}]
workloads: [{insert_benchmark: {clients: 2, rows_i0: 100, steps_only: [l.i0]}}]
"""


def releases(step: Step) -> list[Step]:
    """The same small step again and again; only the first makes the tables."""
    later = [
        dataclasses.replace(load, options={**load.options, "create_table": False})
        for load in step.loads
    ]
    again = dataclasses.replace(step, loads=later)
    return [step, *itertools.repeat(again, RELEASES - 1)]


def make_plan(fleet: inventory.Fleet, path: Path) -> tuple[Plan, experiment.Policy]:
    """One trial of 30 short steps."""
    path.write_text(EXPERIMENT)
    loaded = experiment.load(path).experiment
    planned = plan.make_plan(loaded, fleet, path.parent)
    (trial,) = planned.trials
    trial = dataclasses.replace(trial, steps=releases(trial.steps[0]))
    return dataclasses.replace(planned, trials=[trial]), loaded.policy


def measure(fleet: inventory.Fleet, directory: Path) -> list[float]:
    """The start skew of each release in seconds."""
    planned, policy = make_plan(fleet, directory / "experiment.yaml")
    run = store.create(directory / "results")
    conduct.begin(run, planned.experiment, ["start_skew"])
    agent = bundle.build(directory / "agent.pyz").path.read_bytes()
    opened = channel.open_channels(planned.hosts.values())
    for name, way in opened.channels.items():
        way.write(planned.hosts[name].agent, agent, 0o755)
    what = Conduct(planned, policy, run, Patience(lead_seconds=LEAD_SECONDS, lead_factor=2.0))
    outcome = conduct.conduct(what, opened.channels, threading.Event())
    opened.close()
    if outcome.state != "complete":
        raise RuntimeError(f"the run is {outcome.state}: {[str(e) for e in outcome.errors]}")
    skews = []
    for path in sorted(run.trial(planned.trials[0].id).glob("*/step.json")):
        hosts = store.read_json(path)["hosts"].values()
        firsts = [host["first_event"] for host in hosts if host["role"] == "load"]
        skews.append(max(firsts) - min(firsts))
    return skews


def main() -> int:
    """Measure on a lab of its own and print."""
    spec = lab.LabSpec(f"d-{secrets.token_hex(3)}", "light", db=1, load=2)
    with tempfile.TemporaryDirectory(prefix="fm-bench-") as name:
        fleet = inventory.load(lab.up(spec, lambda _: None))
        try:
            skews = measure(fleet, Path(name))
        finally:
            lab.down(spec.name)
    print(f"start skew of two load hosts over {len(skews)} releases")
    return answer(
        _against_limit("median", statistics.median(skews), MEDIAN_LIMIT_SECONDS),
        _against_limit("worst", max(skews), WORST_LIMIT_SECONDS),
    )


def _against_limit(which: str, seconds: float, limit_seconds: float) -> Measured:
    return Measured(f"start_skew_{which}", f"{seconds * 1e3:.3f} ms", seconds / limit_seconds, 1.0)


if __name__ == "__main__":
    sys.exit(main())
