"""``assay simulate`` with the real Accel-Sim: ``make test-simulator``."""
