"""Segments from agents: checked, made durable, published; and lost published files."""
