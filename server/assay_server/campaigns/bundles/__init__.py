"""Bundles of submitters: kept on the disk by their hash, while a campaign names them."""
