"""Ways of measuring a run: each a module with one class that satisfies ``seam.Profiler``."""
