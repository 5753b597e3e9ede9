"""Reporters draw a document on a console; they neither compute nor decide."""
