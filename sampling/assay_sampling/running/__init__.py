"""The vocabulary of runs: conditions, devices, failures, validity flags, facts of attempts."""
