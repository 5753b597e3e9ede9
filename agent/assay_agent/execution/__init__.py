"""Running tools: their environment, confinement, versions, locks, and the causes of failures."""
