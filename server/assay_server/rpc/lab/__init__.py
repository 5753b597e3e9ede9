"""The LabService: agents and the queue, the audit log, and people's roles."""
