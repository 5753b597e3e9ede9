"""Campaigns on the server: their file, the plan of runs, leases and retries, ingest, publishing, analysis."""
