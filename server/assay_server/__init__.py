"""The server: plans and schedules campaigns, stores records, selects, scores, reports."""
