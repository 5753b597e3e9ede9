"""The GPUs of a box: inventory, driver queries, and the interface for modelled GPUs."""
