"""Confinement: running files of submitters where they see little of the box and nothing of the agent."""
