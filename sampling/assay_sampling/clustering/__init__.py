"""Launches grouped by numbers: feature space, k-means, complete linkage, contiguous segments."""
