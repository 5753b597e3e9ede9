"""Connections of a database: one writer with shared commits, readers of one moment, prepared statements."""
