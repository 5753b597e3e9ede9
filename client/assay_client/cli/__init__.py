"""The command ``assay``: one file a verb; ``main`` is the one place that catches errors."""
