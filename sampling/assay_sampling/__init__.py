"""Assay's pure library: launch table, readers, selection methods and evaluation."""
