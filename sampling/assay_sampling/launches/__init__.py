"""Launches: the table, launches in memory and on disk, several recordings joined and aligned."""
