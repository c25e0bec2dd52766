"""The Prometheus side: collectors of what a run publishes, and exporters that live on hosts.

Beside the code lie a Grafana dashboard and Prometheus rules for these metrics.
"""

from pathlib import Path

_HERE = Path(__file__).parent


def dashboard_path() -> Path:
    """The Grafana dashboard of a run, JSON."""
    return _HERE / "grafana" / "fleetmark-run.json"


def rules_path() -> Path:
    """Recording and alerting rules for Prometheus, YAML."""
    return _HERE / "prometheus" / "fleetmark.rules.yml"
