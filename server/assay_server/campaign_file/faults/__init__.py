"""Faults of a campaign file, with their line and field."""
