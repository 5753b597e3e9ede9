"""Choosing a method: the recommended one, and methods scored on other GPUs at one speedup."""
