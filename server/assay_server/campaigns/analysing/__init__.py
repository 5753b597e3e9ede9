"""Analyses of campaigns whose runs have ended, in worker processes."""
