"""What a server may ask of this agent: the policy file, and the gate that enforces it."""
