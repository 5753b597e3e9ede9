"""Running tools: their environment, supervision, versions, locks, and the causes of failures."""
