"""The Prometheus side: collectors of what a run publishes, and exporters that live on hosts."""
