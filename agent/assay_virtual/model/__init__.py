"""The model: durations and counters of a workload's launches on a kind of GPU."""
