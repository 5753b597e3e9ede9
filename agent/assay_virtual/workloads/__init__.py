"""Workload files for virtual GPUs."""
