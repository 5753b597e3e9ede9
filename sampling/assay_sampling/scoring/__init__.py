"""Selections and their scores: where they were made, elsewhere, and under two conditions."""
