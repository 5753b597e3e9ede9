"""What recordings hold: their facts, and the kernels, operators and ranges with the most time."""
