"""Assay under the eyes of a real Prometheus, from Debian's package."""
