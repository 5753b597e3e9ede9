"""Heartbeats of agents: answered from memory or from one look at the store, and noted together."""
