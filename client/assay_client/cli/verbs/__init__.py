"""The verbs of ``assay``, one file each."""
