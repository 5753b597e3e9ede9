"""A real Slurm of one node and two fake GPUs, for agents that work as jobs: ``make slurm-long``."""
