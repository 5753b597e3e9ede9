"""Answers to requests of browsers: logging in, pages and their streams, actions, figures, downloads."""
