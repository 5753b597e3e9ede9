"""Principal kernel selection (PKS), on one level and on two."""
