"""Maintenance of a server's state: backup, restore, checks, and archives of campaigns."""
