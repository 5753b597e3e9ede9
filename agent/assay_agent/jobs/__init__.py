"""The batch job of this process, and its GPUs."""
