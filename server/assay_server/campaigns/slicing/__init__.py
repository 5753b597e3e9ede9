"""Slices while a campaign runs: their measured cost, and the changes after the end of one."""
