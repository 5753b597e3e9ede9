"""The client of a campaign server."""
