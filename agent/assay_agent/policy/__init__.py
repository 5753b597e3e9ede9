"""The policy file, and the gate that enforces it."""
