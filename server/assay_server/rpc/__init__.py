"""gRPC: servicers hand requests to plain handlers, which know neither sockets nor event loops."""
