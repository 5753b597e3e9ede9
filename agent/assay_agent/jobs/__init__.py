"""Jobs of a batch system: which one this process is, and which GPUs it was given."""
