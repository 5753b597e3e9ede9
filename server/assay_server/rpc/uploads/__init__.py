"""Uploads of segments: the servicer, and what joins the messages of a stream."""
