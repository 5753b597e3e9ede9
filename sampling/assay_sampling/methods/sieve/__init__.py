"""Sieve: strata of launches that execute about the same number of instructions."""
