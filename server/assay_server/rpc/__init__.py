"""gRPC: servicers hand requests to plain handlers, which know no sockets."""
