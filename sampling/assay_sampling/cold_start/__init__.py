"""The cost of cold caches to each launch, measured and estimated."""
