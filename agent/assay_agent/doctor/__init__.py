"""Read-only checks: what is missing on this box, and what an agent on it would offer."""
