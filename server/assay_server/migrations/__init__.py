"""Migrations of the metadata store, run by :mod:`assay_server.store.migrate`."""
