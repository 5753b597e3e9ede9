"""Tables of other tools, read by a mapping of their columns to those of the launch table."""
