"""Who may ask the live page for what: links, sessions, the access table, and what holds for every request."""
