"""The words of running: conditions, devices, failures, validity flags, facts of attempts."""
