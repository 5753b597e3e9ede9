"""The stand-in for Nsight Systems."""
