"""Verdicts: the sentences on a report's first screen."""
