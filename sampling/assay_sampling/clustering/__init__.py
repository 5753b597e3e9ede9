"""Grouping launches by their features: feature space, k-means, complete linkage, contiguous segments."""
