"""Counters: their definitions, what to do where some are missing, passes they cost, impossible numbers."""
