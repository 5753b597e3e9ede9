"""The model: what a workload's launches do on a kind of GPU, how long they take, and their counters."""
