"""Reporters: a document in, a rendering on a console out; they neither compute nor decide."""
