"""One module a schema version, oldest first; a released one never changes."""
