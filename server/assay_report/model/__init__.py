"""The report document: one module per part, each field with its unit and meaning."""
