"""Prepares the text of events for a reader of objects that stand one after the other: leaves out events that
nobody asked for, and writes a line break for the comma between two events.

JSON has no line break within a text, nor in place of a comma in a list: where a comma was not between two
events, what comes out is not JSON.

An event is left out only where its text can mean nothing else; all others stay. What stands between two
separators is one event if it has no brace, or one pair that ends there: then no list of objects is open in
it. Its category is what follows ``"cat":`` before its braces, if that stands there once and nothing is
written with backslashes; without that key it has none. What is left out is not checked to be JSON.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

import numpy as np

_BETWEEN_EVENTS = re.compile(rb"[ \t\n\r]*\}[ \t\n\r]*,[ \t\n\r]*\{")
_CATEGORY = b'"cat": "'
_KEY = b'"cat"'
# Of a category's text its first bytes are compared, as one number.
_COMPARED = 6
# Bytes behind the text, so that a key near its end is compared like any other.
_ROOM = len(_CATEGORY) + 8


@dataclass(frozen=True)
class Objects:
    """``text`` of ``count`` objects, separated by white space, and how many events were ``left_out``."""

    text: bytes
    count: int
    left_out: int


def wanted_events(data: bytes, categories: Set[str]) -> Objects:
    """The events of ``data``, objects with commas between them, that may be of ``categories``, each with at
    least six letters."""
    match = _BETWEEN_EVENTS.search(data)
    if match is None or data[:1] != b"{" or data[-1:] != b"}":
        return Objects(data, 1, 0)
    separator, characters = match[0], np.zeros(len(data) + _ROOM, np.uint8)
    characters[: len(data)] = np.frombuffer(data, np.uint8)
    closing, opening = np.flatnonzero(characters == ord("}")), np.flatnonzero(characters == ord("{"))
    last_closing = np.append(_separating(characters, closing, separator), len(closing) - 1)
    ends = closing[last_closing] - separator.index(b"}")
    ends[-1] = len(data) - 1
    begins = np.append(1, ends[:-1] + len(separator))
    first_opening = np.searchsorted(opening, begins)
    opened = np.diff(np.append(first_opening, len(opening) + 1)) - 1
    closed = np.diff(last_closing, prepend=-1) - 1
    brace = np.where(opened > 0, np.append(opening, 0)[np.minimum(first_opening, len(opening))], ends)
    one_event = (opened == closed) & ((opened == 0) | ((opened == 1) & (characters[ends - 1] == ord("}"))))
    unwanted = one_event & _of_other_category(characters, begins, brace, categories)
    if b"\\" in data:
        escaped = np.flatnonzero(characters == ord("\\"))
        unwanted[np.searchsorted(begins, escaped, "right") - 1] = False
    left_out = int(unwanted.sum())
    if left_out == len(unwanted):
        return Objects(b"", 0, left_out)
    characters[ends[:-1] + separator.index(b",")] = ord("\n")
    edges = np.flatnonzero(np.diff(~unwanted, prepend=False, append=False)).reshape(-1, 2)
    runs = zip(begins[edges[:, 0]].tolist(), ends[edges[:, 1] - 1].tolist(), strict=True)
    lines = characters.data
    text = separator.replace(b",", b"\n").join([lines[begin:end] for begin, end in runs])
    return Objects(b"{" + text + b"}", len(unwanted) - left_out, left_out)


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
    ``categories``, or have no category."""
    keys = np.flatnonzero((characters[:-1] == _KEY[0]) & (characters[1:] == _KEY[1]))
    keys = keys[keys < len(characters) - _ROOM]
    for place, byte in enumerate(_KEY):
        keys = keys[characters[keys + place] == byte]
    event = np.searchsorted(begins, keys, "right") - 1
    valid = keys < brace[event]
    for place, byte in enumerate(_CATEGORY):
        valid &= characters[keys + place] == byte
    eight = np.lib.stride_tricks.sliding_window_view(characters, 8)[keys + len(_CATEGORY)]
    texts = eight.view("<u8").reshape(-1) & np.uint64(256**_COMPARED - 1)
    for category in categories:
        valid &= texts != np.uint64(int.from_bytes(category.encode()[:_COMPARED], "little"))
    keys_of_event, of_other = (np.bincount(events, minlength=len(begins)) for events in (event, event[valid]))
    other: np.ndarray = (keys_of_event == of_other) & (keys_of_event <= 1)
    return other
