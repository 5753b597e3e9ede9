"""Scores of selections: on their own recording, on others, and between two conditions."""
