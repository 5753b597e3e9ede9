"""The tables of a report, for terminal, Markdown and HTML."""
