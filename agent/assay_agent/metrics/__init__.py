"""The agent's metrics: attempts, spool, acknowledgements, heartbeats, and the GPUs' health."""
