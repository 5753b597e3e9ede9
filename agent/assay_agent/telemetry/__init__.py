"""Watching the GPU during a run: sensors, samples, the thermal gate, and the rules that set flags.

Measurements use ``watch.GpuWatch``, which uses everything else.
"""
