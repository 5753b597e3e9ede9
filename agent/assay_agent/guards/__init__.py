"""What is watched during a run: memory, disk, and whether DCGM uses the counters."""
