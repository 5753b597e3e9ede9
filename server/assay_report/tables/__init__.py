"""The tables of a report: made here once, drawn by the terminal, Markdown and HTML."""
