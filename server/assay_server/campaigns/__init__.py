"""Campaigns on the server: the plan of runs, leases and retries, ingest, publishing, analysis."""
