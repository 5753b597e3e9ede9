"""Reading files, plain or compressed, in blocks; the mark of synthetic data."""
