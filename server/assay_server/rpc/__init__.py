"""gRPC: one table of calls hands requests to plain handlers, which know no sockets."""
