"""Bundles: the files of a workload as one canonical archive, packed, checked and unpacked."""
