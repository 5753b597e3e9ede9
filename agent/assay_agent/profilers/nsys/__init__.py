"""Light runs under Nsight Systems."""
