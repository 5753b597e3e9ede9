"""Traces and logs compared with a selection: which launches they are."""
