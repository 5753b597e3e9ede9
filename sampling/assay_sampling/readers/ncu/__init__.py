"""Nsight Compute: raw and details pages as CSV, and binary reports."""
