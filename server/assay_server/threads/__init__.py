"""Threads that work for others: one does a step again and again, one handles many things together."""
