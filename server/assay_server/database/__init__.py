"""Which database holds a state's metadata, how it is opened, and how all of it moves to another one."""
