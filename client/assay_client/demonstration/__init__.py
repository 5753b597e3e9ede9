"""``assay demo``: a server and agents as separate processes, kept alive and stopped in order."""
