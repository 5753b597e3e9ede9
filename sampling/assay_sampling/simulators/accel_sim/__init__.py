"""Accel-Sim and GPGPU-Sim: traces, logs, lists of kernels."""
