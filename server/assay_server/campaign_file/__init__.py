"""The campaign file: text, keys, checks, and the compiled form."""
