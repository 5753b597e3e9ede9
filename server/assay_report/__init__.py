"""Reports and how they are drawn: the typed model, the tables, Markdown and HTML.

The server fills the model in, the client reads it, and both draw the same tables.
"""
