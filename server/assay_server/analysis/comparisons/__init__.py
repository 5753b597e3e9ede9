"""Comparisons of runs, one per module."""
