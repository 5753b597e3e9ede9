"""Unacknowledged launches on the agent's disk."""
