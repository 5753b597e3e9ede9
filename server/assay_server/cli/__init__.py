"""The verbs of assay-server besides serving; each is a module."""
