"""Photon: launches matched by their basic-block vectors."""
