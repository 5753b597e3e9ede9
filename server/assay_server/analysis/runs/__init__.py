"""Runs of an analysis: the request, and reading their launches back."""
