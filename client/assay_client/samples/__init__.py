"""A small synthetic sample of every kind of file that the README's commands read, made on virtual GPUs."""
