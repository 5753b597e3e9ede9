"""How large the house is: what a newcomer has to read."""
