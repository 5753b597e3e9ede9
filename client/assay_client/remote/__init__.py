"""The client of a campaign server: the connection, its answers, the end of a campaign."""
