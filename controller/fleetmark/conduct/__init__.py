"""Conduct a run: arm, release, follow, end; the failure policy.

`run` takes the hosts and gives them back, `preflight` looks at them, `trial` is the life of one
instance, `step` one measured phase, `follow` its gathering while it goes, `proof` what shows
that it can be trusted.
"""

from fleetmark.conduct.again import gather_run, replan, stop_run
from fleetmark.conduct.context import Patience
from fleetmark.conduct.discard import discard_run
from fleetmark.conduct.look import HostLook, look
from fleetmark.conduct.preflight import combined
from fleetmark.conduct.record import begin, set_state
from fleetmark.conduct.run import Conduct, RunOutcome, conduct

__all__ = [
    "Conduct",
    "HostLook",
    "Patience",
    "RunOutcome",
    "begin",
    "combined",
    "conduct",
    "discard_run",
    "gather_run",
    "look",
    "replan",
    "set_state",
    "stop_run",
]
