"""Starts Assay's programs in tests by a fork of a process that has loaded them."""
