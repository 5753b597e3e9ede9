"""GPUs and counters that fail: quarantine, and return to service."""
