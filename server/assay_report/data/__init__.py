"""A report as data: flat tables with the keys of its JSON, as CSV and Parquet."""
