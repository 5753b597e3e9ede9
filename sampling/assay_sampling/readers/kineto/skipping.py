"""Leaves out events of categories that nobody asked for before their text is decoded.

An event is left out only where its text can mean nothing else; all others are kept. In JSON no text holds a
line break, so a separator with one lies outside of texts. What stands between two of them is one event if it
has no brace, or one pair that ends there: then no list of objects is open in it. Its category is what follows
``"cat":`` before its braces, if that stands there once and nothing is written with backslashes. What is left
out is not checked to be JSON.
"""

from __future__ import annotations

import re
from collections.abc import Set

import numpy as np

_BETWEEN_EVENTS = re.compile(rb"[ \t\n\r]*\}[ \t\n\r]*,[ \t\n\r]*\{")
_CATEGORY = b'"cat": "'
_KEY = b'"cat"'
# Of a category's text its first bytes are compared, as one number.
_COMPARED = 6


def wanted_events(text: str, categories: Set[str]) -> tuple[bytes, int]:
    """The events of ``text``, objects with commas between them, that may be of ``categories``, each with at
    least six letters; and how many others there were."""
    data = text.encode()
    match = _BETWEEN_EVENTS.search(data)
    if match is None or b"\n" not in match[0] or data[:1] != b"{" or data[-1:] != b"}":
        return data, 0
    separator, characters = match[0], np.frombuffer(data, np.uint8)
    closing, opening = np.flatnonzero(characters == ord("}")), np.flatnonzero(characters == ord("{"))
    last_closing = np.append(_separating(characters, closing, separator), len(closing) - 1)
    ends = closing[last_closing] - separator.index(b"}")
    ends[-1] = len(data) - 1
    begins = np.append(1, ends[:-1] + len(separator))
    first_opening = np.searchsorted(opening, begins)
    opened = np.diff(np.append(first_opening - 1, len(opening) - 1)) - 1
    closed = np.diff(last_closing, prepend=-1) - 1
    brace = np.where(opened > 0, np.append(opening, 0)[np.minimum(first_opening, len(opening))], ends)
    one_event = (opened == closed) & ((opened == 0) | ((opened == 1) & (characters[ends - 1] == ord("}"))))
    unwanted = one_event & _of_other_category(characters, begins, brace, categories)
    if b"\\" in data:
        escaped = np.flatnonzero(characters == ord("\\"))
        unwanted[np.searchsorted(begins, escaped, "right") - 1] = False
    unwanted[-1] = False  # it ends too close to the end for its keys to be compared
    edges = np.flatnonzero(np.diff(~unwanted, prepend=False, append=False)).reshape(-1, 2)
    runs = zip(begins[edges[:, 0]].tolist(), ends[edges[:, 1] - 1].tolist(), strict=True)
    wanted = separator.join([data[begin:end] for begin, end in runs])
    return b"{" + wanted + b"}" if len(edges) else b"", int(unwanted.sum())


def _separating(characters: np.ndarray, closing: np.ndarray, separator: bytes) -> np.ndarray:
    """Which of the closing braces belong to a separator, ascending."""
    starts = closing - separator.index(b"}")
    rows = np.flatnonzero((starts > 0) & (starts + len(separator) < len(characters)))
    for place, byte in reversed(list(enumerate(separator))):  # the end tells braces apart soonest
        rows = rows[characters[starts[rows] + place] == byte]
    return rows


def _of_other_category(
    characters: np.ndarray, begins: np.ndarray, brace: np.ndarray, categories: Set[str]
) -> np.ndarray:
    """Which of the events, that begin at ``begins``, have one category, before ``brace``, and none of
    ``categories``."""
    room = len(characters) - len(_CATEGORY) - 8
    keys = np.flatnonzero((characters[:-1] == _KEY[0]) & (characters[1:] == _KEY[1]))
    keys = keys[keys < room]
    for place, byte in enumerate(_KEY):
        keys = keys[characters[keys + place] == byte]
    event = np.searchsorted(begins, keys, "right") - 1
    known = keys < brace[event]
    for place, byte in enumerate(_CATEGORY):
        known &= characters[keys + place] == byte
    eight = np.lib.stride_tricks.sliding_window_view(characters, 8)[keys + len(_CATEGORY)]
    texts = eight.view("<u8").reshape(-1) & np.uint64(256**_COMPARED - 1)
    for category in categories:
        known &= texts != np.uint64(int.from_bytes(category.encode()[:_COMPARED], "little"))
    once, of_other = (np.bincount(events, minlength=len(begins)) == 1 for events in (event, event[known]))
    other: np.ndarray = once & of_other
    return other
