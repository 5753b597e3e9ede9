"""What probes hear: the standard health service, of an active server and of one that stands by."""
