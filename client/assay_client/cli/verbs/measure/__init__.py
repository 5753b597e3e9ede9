"""Verbs that measure on this machine, and plan or show what was measured."""
