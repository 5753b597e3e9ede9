"""The server's metrics for Prometheus: what it counts, and what it asks the store when it is read."""
