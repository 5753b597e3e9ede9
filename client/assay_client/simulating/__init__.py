"""Selected launches simulated, each in a process of its own: resumed, and put into a table of designs."""
