"""Engines: group-by and sort over launches, in memory or on disk."""
