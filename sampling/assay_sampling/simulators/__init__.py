"""Files of simulators: traces, logs and lists of launches."""
