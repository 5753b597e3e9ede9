"""Connections of a database: one writer, readers of one moment, prepared statements."""
