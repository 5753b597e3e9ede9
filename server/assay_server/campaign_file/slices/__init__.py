"""Cuts a window of launches into slices and estimates their cost; pure."""
