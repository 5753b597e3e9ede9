"""Pages drawn from the answers of the handlers: templates, words for people, and what has changed."""
