"""Selection methods: the registry, what all share, and a folder a method."""
