"""Launches on the agent's disk, until the server has acknowledged them."""
