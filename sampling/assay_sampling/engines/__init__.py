"""Engines: group-by and sort over launches, in memory or beyond it, and columns on disk read in blocks."""
