"""The database of a state's metadata: opening it, and moving to another one."""
