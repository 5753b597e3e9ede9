"""A lab in one process: simulated agents and watchers over real sockets, and what they see of a server."""
