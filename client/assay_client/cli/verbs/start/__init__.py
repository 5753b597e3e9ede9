"""Verbs to begin with: a demo, samples, documentation, what a machine lacks."""
