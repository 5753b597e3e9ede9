"""Folders of a state directory or a shared place, each with files of one kind."""
