"""Verdicts: from the rows of a report to the sentences on its first screen."""
