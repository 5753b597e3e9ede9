"""From the stored runs of a campaign to its report document: align, select, score."""
