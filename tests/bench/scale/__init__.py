"""``make bench-scale``: what grows with a lab, each beside what it is compared with, in one run."""
