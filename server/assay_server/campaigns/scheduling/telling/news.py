"""What a transaction changed, as texts for the other servers of a database, and read again there.

A text has keys and identifiers; whoever hears it reads the records themselves, as they are then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from assay_core.records.attempt import AttemptKey
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.peers.seam import MOST_BYTES
from assay_server.store.protocols import MetadataReader

_ROOM = MOST_BYTES - 200  # for the sender and the marks
_READ_AGAIN = ("registered", "leased", "rested", "done")


def news_of(effects: Effects, sender: str) -> list[str]:
    """The texts that tell other servers of a transaction; none if it does not concern them."""
    texts: list[str] = []
    parts: dict[str, list[Any]] = {}
    size = 0
    marks = {"work": effects.work, "doubt": effects.doubt}
    for name, item in _items(effects):
        item_size = len(json.dumps(item)) + len(name) + 8
        if parts and size + item_size > _ROOM:
            texts.append(_text(sender, parts, {}))
            parts, size = {}, 0
        parts.setdefault(name, []).append(item)
        size += item_size
    if parts or any(marks.values()):
        texts.append(_text(sender, parts, marks))  # the last one: what slots wait for is known then
    return texts


def _items(effects: Effects) -> Iterator[tuple[str, Any]]:
    yield from (("campaigns", campaign_id) for campaign_id in sorted(effects.campaigns))
    yield from (("registered", agent_id) for agent_id in sorted(effects.registered))
    yield from (("refused", agent_id) for agent_id in effects.refused)
    yield from (("leased", _numbers(key)) for key, _run in effects.leased)
    yield from (("freed", _numbers(key)) for key in effects.freed)
    yield from (("dead", _numbers(key)) for key in effects.dead)
    yield from (("rested", _numbers(attempt.key)) for attempt, _why in effects.rested)
    yield from (("done", _numbers(attempt.key)) for attempt in effects.done)


def _numbers(key: AttemptKey) -> list[Any]:
    return [key.run_id, key.slice_index, key.attempt, key.token]


def _text(sender: str, parts: dict[str, list[Any]], marks: dict[str, bool]) -> str:
    return json.dumps({"from": sender, **parts, **marks}, separators=(",", ":"))


def is_own(text: str, own: str) -> bool:
    """Whether a text is this server's own."""
    return bool(json.loads(text)["from"] == own)


def needs_records(text: str) -> bool:
    """Whether whoever hears a text must read records to know what it means."""
    told = json.loads(text)
    return any(name in told for name in _READ_AGAIN)


def effects_told(text: str, store: MetadataReader | None) -> Effects:
    """What another server's transaction changed; without a store, of a text that needs no records.

    Analyses are not among it: they are leased from the store.
    """
    told = json.loads(text)
    effects = Effects(work=told.get("work", False), doubt=told.get("doubt", False))
    effects.campaigns.update(told.get("campaigns", ()))
    effects.registered.update(told.get("registered", ()))
    effects.refused.extend(told.get("refused", ()))
    effects.freed.extend(AttemptKey(*each) for each in told.get("freed", ()))
    effects.dead.extend(AttemptKey(*each) for each in told.get("dead", ()))
    if store is None:
        return effects
    for key in (AttemptKey(*each) for each in told.get("leased", ())):
        run = store.run(key.run_id)
        if run is not None:
            effects.leased.append((key, run))
    for name in ("rested", "done"):
        for key in (AttemptKey(*each) for each in told.get(name, ())):
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
            if attempt is None or attempt.key != key:
                continue
            if name == "done":
                effects.done.append(attempt)
            elif attempt.failure is not None:
                effects.rested.append((attempt, attempt.failure))
    return effects
