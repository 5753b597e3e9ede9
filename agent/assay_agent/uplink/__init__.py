"""The agent's side of the wire: one connection, one session, and the stream of segments."""
