"""The command ``assay``: one file per verb in ``verbs``; only ``main`` catches errors."""
