"""Builds a release and checks it where nothing of the checkout is."""
