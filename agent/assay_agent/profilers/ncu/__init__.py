"""Detailed runs under Nsight Compute."""
