"""What a transaction changed, as texts for the other servers of a database, and read again there.

A text says what they all need to know. Why a slot rests and what an agent registered is long and rare: of
these it has keys and identifiers, and whoever hears it reads the records, as they are then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay_core.records.attempt import AttemptKey
from assay_core.records.wire import WireError
from assay_server.campaigns.scheduling.queue import GpuLease
from assay_server.campaigns.scheduling.resting import DoneSlot
from assay_server.campaigns.scheduling.transitions import Effects
from assay_server.peers.interface import MOST_BYTES
from assay_server.store.sql import SqlTransaction

_ROOM = MOST_BYTES - 200  # for the sender and the marks

_encoded = json.JSONEncoder(separators=(",", ":")).encode  # ASCII: a character is a byte
_Number = Annotated[int, Field(ge=0, lt=1 << 63)]  # as a database keeps it
_Key = tuple[str, _Number, _Number, _Number]  # the fields of AttemptKey


class _Document(BaseModel):
    """The JSON document that is a text, but for its sender, whom :func:`is_own` looks at."""

    model_config = ConfigDict(strict=True, extra="forbid")

    sender: str = Field(alias="from")
    campaigns: list[str] = []
    registered: list[str] = []
    refused: list[str] = []
    leased: list[tuple[str, _Number, _Number, _Number, str, _Number]] = []  # key, campaign, number of GPUs
    freed: list[_Key] = []
    dead: list[_Key] = []
    rested: list[_Key] = []
    done: list[tuple[str, str, _Number]] = []  # agent, slot, token
    work: bool = False
    doubt: bool = False
    missed: bool = False


@dataclass(frozen=True)
class News:
    """What another server's transaction changed; of attempts after which a slot ``rested`` only the keys.

    Analyses are not among it: they are leased from the store.
    """

    effects: Effects
    rested: tuple[AttemptKey, ...]

    @property
    def needs_records(self) -> bool:
        """Whether whoever heard of it must read records to know what it means."""
        return bool(self.rested or self.effects.registered)

    def read_rested(self, store: SqlTransaction) -> None:
        """Add the failures after which slots rest to the effects."""
        for key in self.rested:
            attempt = store.attempt(key.run_id, key.slice_index, key.attempt)
            if attempt is not None and attempt.key == key and attempt.failure is not None:
                self.effects.rested.append((attempt, attempt.failure))


def news_of(effects: Effects, sender: str) -> list[str]:
    """The texts that tell other servers of a transaction; none if it does not concern them."""
    texts: list[str] = []
    parts: dict[str, list[Any]] = {}
    size = 0
    marks = {"work": effects.work, "doubt": effects.doubt, "missed": effects.missed}
    for name, item in _items(effects):
        item_size = len(_encoded(item)) + len(name) + 8
        if item_size > _ROOM:  # no text can say it, so they are told to look for themselves
            marks = dict.fromkeys(marks, True)
            continue
        if parts and size + item_size > _ROOM:
            texts.append(_text(sender, parts))
            parts, size = {}, 0
        parts.setdefault(name, []).append(item)
        size += item_size
    told = {name: True for name, is_so in marks.items() if is_so}
    if parts or told:
        texts.append(_text(sender, parts | told))  # the last one: what slots wait for is known then
    return texts


def _items(effects: Effects) -> Iterator[tuple[str, Any]]:
    yield from (("campaigns", campaign_id) for campaign_id in sorted(effects.campaigns))
    yield from (("registered", agent_id) for agent_id in sorted(effects.registered))
    yield from (("refused", agent_id) for agent_id in effects.refused)
    yield from (("leased", (*_numbers(each.key), each.campaign_id, each.gpus)) for each in effects.leased)
    yield from (("freed", _numbers(key)) for key in effects.freed)
    yield from (("dead", _numbers(key)) for key in effects.dead)
    yield from (("rested", _numbers(attempt.key)) for attempt, _why in effects.rested)
    yield from (("done", (each.agent_id, each.slot_id, each.token)) for each in effects.done)


def _numbers(key: AttemptKey) -> _Key:
    return key.run_id, key.slice_index, key.attempt, key.token


def _opening(sender: str) -> str:
    """How each text of a sender begins, and none of another one."""
    return f'{{"from":{_encoded(sender)},'


def _text(sender: str, told: Mapping[str, Any]) -> str:
    return _opening(sender) + _encoded(told)[1:]


def is_own(text: str, own: str) -> bool:
    """Whether a text is this server's own; it is not read for that."""
    return text.startswith(_opening(own))


def read_news(text: str) -> News | None:
    """What another server's text says; None if it is not understood: broken, or of another release."""
    try:
        return _meant(_Document.model_validate_json(text))
    except (ValidationError, WireError):
        return None


def _meant(told: _Document) -> News:
    effects = Effects(
        campaigns=set(told.campaigns),
        registered=set(told.registered),
        refused=told.refused,
        leased=[GpuLease(AttemptKey(*each[:4]), *each[4:]) for each in told.leased],
        freed=[AttemptKey(*key) for key in told.freed],
        dead=[AttemptKey(*key) for key in told.dead],
        done=[DoneSlot(*each) for each in told.done],
        work=told.work,
        doubt=told.doubt,
        missed=told.missed,
    )
    return News(effects, tuple(AttemptKey(*key) for key in told.rested))
