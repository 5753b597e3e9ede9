"""Records on the wire, each with its conversion to and from protobuf."""
