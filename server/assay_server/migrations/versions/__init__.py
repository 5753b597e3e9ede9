"""One module per schema version, oldest first; a released one never changes what it does."""
