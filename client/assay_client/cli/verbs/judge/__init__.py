"""Verbs that select launches from recordings and score selections."""
