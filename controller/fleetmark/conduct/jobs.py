"""From a planned step to the jobs of its hosts. Pure."""

import dataclasses
from typing import Any

from fleetmark.conduct.context import DATABASE, DBMS_USER, TrialContext
from fleetmark.workloads import Step
from fleetmark_agent.job import Connection, Job, Samplers, Settle

DBMS_SAMPLE_SECONDS = 1.0


@dataclasses.dataclass(frozen=True)
class StepJobs:
    """A step of a trial with its jobs by host; the database host's comes last."""

    step: Step
    directory: str
    jobs: dict[str, Job]

    @property
    def defining(self) -> list[str]:
        """The hosts whose jobs end the step: the load hosts, or the one that settles."""
        loads = [name for name, job in self.jobs.items() if job.load is not None]
        return loads or list(self.jobs)


def step_jobs(trial: TrialContext, index: int, instance: dict[str, Any]) -> StepJobs:
    """The jobs of a step: a load for each load host, samplers on the database host.

    A load host without load in this step gets no job. In a settle step only the database host
    has one.
    """
    step = trial.trial.steps[index]
    directory = trial.trial.step_names[index]
    deadline = _deadline_seconds(step, trial.run.policy.outlive_limit_seconds)
    local = Connection("", instance["port"], DBMS_USER, DATABASE, instance["socket"])

    def job(host: str, samplers: Samplers) -> Job:
        return Job(
            run=trial.run.run.run_id,
            trial=trial.directory,
            step=directory,
            host=host,
            samplers=samplers,
            deadline_seconds=deadline,
        )

    jobs = {}
    for link, load in zip(trial.loads, step.loads, strict=False):
        jobs[link.name] = dataclasses.replace(
            job(link.name, Samplers()),
            load=dataclasses.replace(load, connection=trial.over_network),
        )
    settle = step.settle
    on_db = Samplers(
        dbms_interval_seconds=DBMS_SAMPLE_SECONDS,
        dbms_connection=local,
        dbms_pid_file=f"{trial.remote(trial.db, 'dbms')}/pid",
        data_dir=instance["data_dir"],
    )
    if settle is None:
        jobs[trial.db.name] = job(trial.db.name, on_db)
    else:
        jobs[trial.db.name] = dataclasses.replace(
            job(trial.db.name, on_db),
            settle=Settle(local, settle.tables, settle.minimum_seconds, settle.engine),
        )
    return StepJobs(step, directory, jobs)


def _deadline_seconds(step: Step, outlive_limit_seconds: float) -> float:
    """A step of a set length may outlive it by the policy's limit; one that ends by count has
    only a guess of its length, and a bound far beyond it."""
    if step.sla is not None:
        return step.expected_seconds + outlive_limit_seconds
    return step.deadline_seconds
