"""Judging: from the rows of a report, of any release, to the verdicts that its first screen says."""
