"""Keeping a server's state for weeks: backup, restore, checks, and archives of campaigns."""
