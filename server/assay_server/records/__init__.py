"""Which folder or bucket holds a state's records, how it is opened, and how they move to another one."""
