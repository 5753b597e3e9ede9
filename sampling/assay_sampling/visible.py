"""Text from outside, shown to people: names of kernels and workloads, logs and messages may hold anything."""

from __future__ import annotations

import re
import unicodedata

# Control characters, marks that turn or hide the text around them, and what XML and UTF-8 cannot hold
# (Unicode general categories).
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_SHOWN_AS_THEY_ARE = frozenset("\n\t\u200c\u200d")  # joiners: some scripts and emoji need them
# Bidi_Control of Unicode 15, all within the first plane, so that JSON escapes each as one \uXXXX.
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """``text`` with the number in place of each character that would steer a terminal, turn or hide the text
    around it, or end a file: ``<U+202E>``. Line ends and tabs stay."""
    if text.isprintable():
        return text
    return "".join(each if _is_plain(each) else f"<U+{ord(each):04X}>" for each in text)


def visible_json(document: str) -> str:
    """A JSON text with the same meaning, in which no mark turns the direction of the text around it."""
    return _DIRECTION.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def _is_plain(character: str) -> bool:
    return character in _SHOWN_AS_THEY_ARE or unicodedata.category(character) not in _HIDDEN
