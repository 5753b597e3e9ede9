"""Who may call, and the audit log, in SQL."""
