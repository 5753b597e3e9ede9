"""Verdicts: may a selection or a score be trusted? One function of typed facts, and one sentence."""
