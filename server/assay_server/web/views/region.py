"""Drawn pages: regions that change while a page is watched, and what differs between two drawings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Region:
    """A part of a page that changes: pieces of HTML by the ``id`` of their element, in their order.

    A region without rows of its own has one piece, under "".
    """

    pieces: Mapping[str, str]

    @property
    def html(self) -> str:
        return "".join(self.pieces.values())


@dataclass(frozen=True)
class Drawing:
    """A page as it was drawn: its title, what its template needs once, and its regions by name."""

    title: str
    template: str
    regions: Mapping[str, Region]
    facts: Mapping[str, object] = field(default_factory=dict)


def difference(before: Drawing | None, after: Drawing) -> dict[str, dict[str, str]]:
    """What a browser that shows ``before`` replaces to show ``after``; empty: nothing.

    ``regions``: inner HTML by name; ``pieces``: elements by id, where a region has the same rows as before.
    ``before`` None: everything.
    """
    regions: dict[str, str] = {}
    pieces: dict[str, str] = {}
    for name, now in after.regions.items():
        was = None if before is None else before.regions.get(name)
        moved = was is None or list(was.pieces) != list(now.pieces)
        if was is None or moved or (was != now and "" in now.pieces):
            regions[name] = now.html
        else:
            pieces |= {key: html for key, html in now.pieces.items() if was.pieces[key] != html}
    return {key: changes for key, changes in (("regions", regions), ("pieces", pieces)) if changes}


def event(name: str, number: str, content: Mapping[str, object]) -> bytes:
    """A server-sent event with a JSON object (html.spec.whatwg.org, 9.2.6)."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return f"event: {name}\nid: {number}\ndata: {text}\n\n".encode()
