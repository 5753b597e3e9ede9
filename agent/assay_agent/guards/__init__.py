"""Guards of a run: memory, disk, and whether DCGM holds the counters."""
