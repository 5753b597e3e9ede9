"""The verbs of ``assay``, a folder for each group of the help page."""
