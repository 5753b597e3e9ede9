"""The agent's metrics for Prometheus: attempts, spool, acknowledgements, heartbeats, and the GPUs' health."""
