"""TBPoint within a launch: which thread blocks to simulate, and what the launch would take."""
