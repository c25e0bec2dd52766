"""Fleetmark's controller. The stations, in the order of the data's way:

errors      error tree, exit code per class
workloads   name + parameters -> steps
tuning      what an experiment asks of its hosts; the contract that follows
experiment  YAML -> Experiment
inventory   Ansible inventory -> hosts and groups
builds      a build -> its record on a host, its engines, its role variables; pure
plan        both -> ordered trials; pure
store       run directory: names, atomic write, checksums
archive     a run as one file, and a run from elsewhere taken in
ledger      append-only record of what happened; source of resume
processes   finds processes by what they work on, ends them by pid
bundle      builds the agent's zipapp
provision   Ansible roles through ansible-runner
contract    declared state against facts -> deviations; pure
channel     SSH or local: run, read, write on a host
clock       offset and bound from exchanges; pure
gather      copies journals from an offset, verifies
conduct     arm, release, poll, end; failure policy
watch       live view and metrics, from the run directory
tables      raw files -> Parquet
analyse     statistics; pure
report      tables -> HTML, Markdown
lab         disposable hosts; writes an ordinary inventory
cli         parse, call one station, print
"""

__version__ = "0.1.0"
