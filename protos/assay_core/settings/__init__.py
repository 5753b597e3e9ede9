"""A program's settings, declared once: flags, variables, keys of the file and the table in the docs."""
