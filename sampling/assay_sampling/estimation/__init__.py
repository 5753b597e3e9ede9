"""Estimates from samples: launches drawn at random, and intervals of totals."""
