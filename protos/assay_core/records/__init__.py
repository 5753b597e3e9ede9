"""Records that cross a boundary: each is defined once, with its conversion to and from protobuf."""
