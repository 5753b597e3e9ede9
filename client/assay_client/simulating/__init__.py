"""Simulates selected launches, a process each, resumable, into a table of designs."""
