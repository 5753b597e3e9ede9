"""What ``make bench`` measures, each beside a named peer in the same run."""
