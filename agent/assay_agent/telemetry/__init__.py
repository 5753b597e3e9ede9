"""Watching the GPU while it measures: sensors, samples, the thermal gate, and the rules that set flags.

``watch.GpuWatch`` is what a measurement uses; everything else stands behind it. Nothing here is a model of
silicon but ``virtual_sensors``, whose numbers are synthetic.
"""
