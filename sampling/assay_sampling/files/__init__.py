"""Files: read in blocks, plain or compressed; Parquet from columns; the mark of synthetic data."""
