"""Readers of profile files: from a file to a stream of launch batches."""
