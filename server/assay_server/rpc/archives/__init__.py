"""Archives of campaigns over gRPC: deleting, exporting and importing."""
