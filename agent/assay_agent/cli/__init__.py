"""The verbs ``policy`` and ``quarantine`` of assay-agent."""
