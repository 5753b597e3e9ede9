"""Workload files, which virtual GPUs run."""
