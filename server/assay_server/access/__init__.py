"""Access: the caller, the table of roles and calls, and the audit log."""
