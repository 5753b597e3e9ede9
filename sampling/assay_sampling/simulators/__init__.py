"""What simulators read and write: traces, logs and lists of launches."""
