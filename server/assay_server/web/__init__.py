"""The live page: people's browsers over HTTP, with sessions, on the handlers and the access table of gRPC."""
