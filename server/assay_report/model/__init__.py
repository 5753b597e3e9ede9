"""The report document: a module per part; each field has its unit and meaning."""
