"""STEM+ROOT: clusters by cost, and as many random samples as a bound needs."""
