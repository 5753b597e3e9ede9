"""Watching campaigns: one status for all who watch a campaign."""
