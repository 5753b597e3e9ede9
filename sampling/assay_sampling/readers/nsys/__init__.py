"""Nsight Systems: exports as SQLite and as Parquet."""
