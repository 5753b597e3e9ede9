"""The live page over HTTP: sessions, on the handlers and the access table of gRPC."""
