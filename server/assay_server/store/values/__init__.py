"""Between records and the rows of their tables: what each column holds."""
