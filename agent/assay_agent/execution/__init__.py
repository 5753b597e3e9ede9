"""Running tools: environment, confinement, versions, locks, errors."""
