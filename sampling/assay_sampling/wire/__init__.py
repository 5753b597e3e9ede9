"""Launches on the wire: columns packed in few bytes, and read again."""
