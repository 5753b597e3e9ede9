"""Where errors come from: parts that add up to them, and the groups that scale unlike."""
