"""Bundles over gRPC: sent by people, fetched by agents."""
