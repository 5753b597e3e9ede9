"""Profilers, a module each with one class that implements ``seam.Profiler``."""
