"""Balanced sampling: Assay's own method (docs/methods/balanced.md)."""
