"""The parts of a transaction over SQL, one module for each kind of record."""
