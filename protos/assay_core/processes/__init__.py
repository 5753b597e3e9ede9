"""Child processes: run within limits, and ended with everything that they started."""
