"""The campaign file: its text, its allowed content, and its compiled form for later steps."""
