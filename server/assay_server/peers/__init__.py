"""Servers side by side on one database: what they tell each other, and what one alone may do at a time."""
