"""TBPoint between launches: hierarchical clustering, one launch a cluster."""
