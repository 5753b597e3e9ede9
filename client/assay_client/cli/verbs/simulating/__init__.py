"""Verbs that hand selections to simulators and read what they simulated."""
