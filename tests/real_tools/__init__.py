"""NVIDIA's own tools for the tests that compare with them; they need no GPU."""
