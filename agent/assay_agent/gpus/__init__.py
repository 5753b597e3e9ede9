"""The GPUs of a box: which there are, how they are queried, and the interface of modelled ones."""
