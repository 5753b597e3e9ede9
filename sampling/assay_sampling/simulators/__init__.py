"""Readers and writers of simulators' files: traces, logs and lists of launches."""
