"""Cold caches: what they cost each launch, measured and estimated."""
