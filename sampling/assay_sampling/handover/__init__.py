"""Selections handed over to simulators and other tools, and simulated launches brought back."""
