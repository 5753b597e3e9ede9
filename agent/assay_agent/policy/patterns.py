"""The patterns of a policy file: globs that a hostile name cannot slip through.

``*`` and ``?`` match anything but a slash, ``**`` matches anything, ``[abc]``, ``[a-z]`` and ``[!abc]`` match
one character that is not a slash. A pattern must match a whole text, newlines included. In a pattern of a
path, the folders before the first glob are resolved (symbolic links, ``..``), like the path that is compared
with it. The time to match is linear in the length of the text, because the text may come from an attacker.
"""

from __future__ import annotations

import functools
import os
import re

_GLOB = re.compile(r"[*?\[]")
_TOKEN = re.compile(r"\*+|\?|\[!?\]?[^\]/]*\]|.", re.DOTALL)
_ANYTHING, _NO_SLASH = "**", "*"


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern matches the whole of ``text``."""
    tokens = _tokens(pattern)
    reached = _reachable(tokens, {0})
    for character in text:
        reached = _reachable(tokens, _step(tokens, reached, character))
        if not reached:
            return False
    return len(tokens) in reached


def matches_path(pattern: str, resolved_path: str) -> bool:
    """Whether the pattern, its own links resolved, matches a path that is already resolved."""
    glob = _GLOB.search(pattern)
    if glob is None:
        return os.path.realpath(pattern) == resolved_path
    cut = pattern.rindex("/", 0, glob.start())
    folder = os.path.realpath(pattern[:cut] or "/").rstrip("/")
    return resolved_path.startswith(folder + "/") and matches(pattern[cut:], resolved_path[len(folder) :])


def _step(tokens: tuple[str, ...], reached: set[int], character: str) -> set[int]:
    """The positions in the pattern after one more character."""
    after = set()
    for place in reached:
        if place == len(tokens):
            continue
        token = tokens[place]
        if token == _ANYTHING or (token == _NO_SLASH and character != "/"):
            after.add(place)
        elif token not in (_ANYTHING, _NO_SLASH) and _stands_for(token, character):
            after.add(place + 1)
    return after


def _reachable(tokens: tuple[str, ...], places: set[int]) -> set[int]:
    """The positions, and those behind stars that match nothing."""
    positions = set(places)
    for place in places:
        ahead = place
        while ahead < len(tokens) and tokens[ahead] in (_ANYTHING, _NO_SLASH):
            ahead += 1
            positions.add(ahead)
    return positions


@functools.lru_cache(maxsize=4096)
def _stands_for(token: str, character: str) -> bool:
    if token == "?":
        return character != "/"
    if len(token) == 1:
        return token == character
    negated = token[1] == "!"
    inside = _in_set(token[2 if negated else 1 : -1], character)
    return character != "/" and inside != negated


def _in_set(members: str, character: str) -> bool:
    while members:
        if len(members) > 2 and members[1] == "-":
            if members[0] <= character <= members[2]:
                return True
            members = members[3:]
        else:
            if members[0] == character:
                return True
            members = members[1:]
    return False


@functools.lru_cache(maxsize=1024)
def _tokens(pattern: str) -> tuple[str, ...]:
    tokens = _TOKEN.findall(pattern)
    return tuple((token if len(token) == 1 else _ANYTHING) if token[0] == "*" else token for token in tokens)
