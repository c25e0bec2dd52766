"""The experiment file: YAML -> Experiment.

Everything is checked before anything is touched: an unknown key is an error that names file,
line and the nearest known key; names must be unique; references must resolve. `model` is what
an experiment is, `reading` reads the file, `places` finds the line of a mistake, `cnf` merges
the variables of a config.
"""

from fleetmark.experiment.cnf import config_variables
from fleetmark.experiment.model import (
    Build,
    Config,
    Contract,
    Experiment,
    Metrics,
    Policy,
    Scalar,
    Target,
    TargetRule,
)
from fleetmark.experiment.reading import LoadedExperiment, load

__all__ = [
    "Build",
    "Config",
    "Contract",
    "Experiment",
    "LoadedExperiment",
    "Metrics",
    "Policy",
    "Scalar",
    "Target",
    "TargetRule",
    "config_variables",
    "load",
]
