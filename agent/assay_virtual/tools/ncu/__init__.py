"""The stand-in for Nsight Compute."""
