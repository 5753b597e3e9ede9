"""An attempt: its key, who may write to it, and how it was made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay_core.records.wire import Record, WireError
from assay_protos import agent_pb2, common_pb2
from assay_sampling.running.attempt_facts import AttemptFacts, parse_facts

LONGEST_LOG_CHARACTERS = 256 << 10

_NOTE_CHARACTERS = 64  # room for the note about the part that is left out

_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, order=True)
class AttemptKey(Record[common_pb2.AttemptKey], slice_index="slice"):
    """One execution under one lease.

    ``token`` grows with every lease that a server gives, and by an epoch with every start of the server: it
    fences off executions under older leases.
    """

    run_id: str
    slice_index: int
    attempt: int
    token: int

    def __post_init__(self) -> None:
        # The key becomes the name of a directory, so nothing that leads elsewhere may pass.
        if not _RUN_ID.fullmatch(self.run_id) or min(self.slice_index, self.attempt) < 0:
            raise WireError(
                f"run {self.run_id[:80]!r}",
                "its identifier must consist of letters, digits, '.', '_' and '-'",
            )

    @property
    def directory_name(self) -> str:
        return f"{self.run_id}-{self.slice_index}-{self.attempt}"

    @property
    def log_fields(self) -> dict[str, str | int]:
        """What :func:`assay_core.program_log.log_about` takes."""
        return {"run": self.run_id, "slice": self.slice_index, "attempt": self.attempt}

    def __str__(self) -> str:
        return f"run {self.run_id} slice {self.slice_index} attempt {self.attempt}"


@dataclass(frozen=True)
class HeldAttempt(Record[agent_pb2.HeldAttempt]):
    """An attempt that an agent found on its disk, and the secret of its lease."""

    key: AttemptKey
    write_secret: bytes = field(repr=False)


@dataclass(frozen=True)
class Claim(Record[Any], secret="write_secret"):
    """A sender's claim to hold the lease of an attempt, within a message; ``secret`` is the lease's."""

    key: AttemptKey
    agent_id: str
    session_id: str = field(repr=False)
    secret: bytes = field(repr=False)


@dataclass(frozen=True)
class AttemptLog(Record[agent_pb2.AttemptLog], text="log"):
    """How an attempt was made, for people: command (empty for a recording), environment, output.

    The environment is scrubbed of secrets. ``wall_seconds`` is how long the measuring commands ran.
    ``telemetry_json`` holds the readings of the GPU's sensors, a JSON object; ``facts_json`` the tools and
    conditions behind the numbers, as :mod:`assay_sampling.running.attempt_facts` writes them; "" if unknown.
    """

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    telemetry_json: str = ""
    wall_seconds: float = 0.0
    facts_json: str = ""

    @property
    def telemetry(self) -> dict[str, Any] | None:
        """The sensors' readings as plain values; None if nothing was measured on a GPU."""
        readings: dict[str, Any] | None = json.loads(self.telemetry_json) if self.telemetry_json else None
        return readings

    @property
    def facts(self) -> AttemptFacts | None:
        """The facts; None if they are missing or this release cannot read them."""
        return parse_facts(self.facts_json)

    def to_proto(self) -> agent_pb2.AttemptLog:
        """The log as a message; a text that is too long is cut to its beginning and end."""
        message = super().to_proto()
        message.log = bounded_text(self.text)
        return message


def bounded_text(text: str) -> str:
    """A text, cut to its beginning and end if it is too long to keep."""
    if len(text) <= LONGEST_LOG_CHARACTERS:
        return text
    half = (LONGEST_LOG_CHARACTERS - _NOTE_CHARACTERS) // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"
