"""Kineto: traces of the PyTorch profiler."""
