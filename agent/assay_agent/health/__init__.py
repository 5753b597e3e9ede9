"""Which GPUs take no runs because they were lost, and when they return to service."""
