"""The verbs of assay-server besides serving, a module each."""
