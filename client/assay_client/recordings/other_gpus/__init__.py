"""Methods compared on other GPUs."""
