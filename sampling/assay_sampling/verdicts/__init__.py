"""Verdicts: whether to trust a selection or a score, from typed facts to one sentence."""
