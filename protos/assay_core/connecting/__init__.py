"""Connections to a server over TCP: channels with TLS, joining, and the renewal of certificates."""
