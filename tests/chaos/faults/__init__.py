"""The kinds of faults: each is one class behind :class:`tests.chaos.faults.seam.Fault`."""
