"""The folder or bucket of a state's records: opening it, and moving to another one."""
