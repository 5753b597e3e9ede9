"""Launches on the wire: packed columns."""
