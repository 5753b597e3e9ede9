"""The kinds of figures, a module each."""
