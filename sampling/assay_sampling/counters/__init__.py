"""Counters: definitions, missing ones, the passes they cost, impossible values."""
