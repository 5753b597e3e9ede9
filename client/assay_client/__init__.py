"""The Python API and the command line of Assay."""
