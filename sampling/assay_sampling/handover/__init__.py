"""Selections exported to simulators and other tools, and simulated launches imported."""
