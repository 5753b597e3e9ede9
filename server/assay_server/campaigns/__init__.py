"""Campaigns on the server: planning of runs, leases and retries, ingest, publishing, analysis."""
