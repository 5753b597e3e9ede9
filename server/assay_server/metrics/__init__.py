"""The server's metrics: counters, and values read from the store."""
