"""Names whose characters turn or hide the text around them, for every form in which names are shown."""

from __future__ import annotations

TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Unicode's Bidi_Control, all of it."""

TURNED = f"gnp{TURNING}.exe\ufeff\U000e0041"
"""A name with all of them, a byte-order mark and an invisible tag."""

HIDDEN = frozenset(TURNING + "\ufeff\U000e0041\u2028\u2029\x00\x07\x1b\x7f\x9b")


def hidden_in(text: str) -> set[str]:
    """The characters of a text that turn or hide others, or steer a terminal."""
    return HIDDEN & set(text)
