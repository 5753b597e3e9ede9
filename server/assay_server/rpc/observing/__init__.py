"""Calls seen from outside: their time and status, and the health service for probes."""
