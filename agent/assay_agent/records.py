"""What stands beside the segments of a spooled attempt: its manifest, and its seal once it is complete."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay_agent import durable
from assay_agent.segments import read_segment_header
from assay_agent.work import Assignment, AttemptKey, ValidityFlag, WireError
from assay_protos import agent_pb2
from assay_sampling.attempt_facts import AttemptFacts, parse_facts
from assay_sampling.errors import StorageError

MANIFEST = "manifest.json"
SEAL = "seal.json"
MAX_LOG_CHARACTERS = 256 << 10
_VERSION = 1


def segment_name(segment: int) -> str:
    """The file name of a segment."""
    return f"segment-{segment:08d}.seg"


@dataclass(frozen=True)
class AttemptLog:
    """How an attempt was made, for people: command (empty for a recording), environment, what was said.

    ``telemetry`` is what was seen of the GPU, plain values (None: nothing was measured on one);
    ``wall_seconds`` is how long the commands that measure ran; ``facts`` is what the numbers rest on beside
    the GPU (None: not known).
    """

    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    text: str = ""
    telemetry: dict[str, Any] | None = None
    wall_seconds: float = 0.0
    facts: AttemptFacts | None = None

    def to_proto(self) -> agent_pb2.AttemptLog:
        return agent_pb2.AttemptLog(
            command=self.command,
            environment=self.environment,
            log=bounded(self.text),
            telemetry_json=json.dumps(self.telemetry) if self.telemetry is not None else "",
            wall_seconds=self.wall_seconds,
            facts_json=self.facts.to_json() if self.facts is not None else "",
        )


def bounded(text: str) -> str:
    """The beginning and the end of a text that is too long to keep."""
    if len(text) <= MAX_LOG_CHARACTERS:
        return text
    half = MAX_LOG_CHARACTERS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters left out ...\n{text[-half:]}"


@dataclass(frozen=True)
class Seal:
    """Totals of a complete attempt; ``remaining`` are the segments not acknowledged when it was sealed."""

    segments: int
    launches: int
    remaining: tuple[int, ...]
    flags: tuple[ValidityFlag, ...]
    log: AttemptLog

    def to_json(self) -> bytes:
        document = {"version": _VERSION, **dataclasses.asdict(self)}
        document["log"]["text"] = bounded(self.log.text)
        document["log"]["facts"] = self.log.facts.to_json() if self.log.facts is not None else ""
        return json.dumps(document, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Seal:
        """Raises ValueError, KeyError or TypeError for anything that :meth:`to_json` did not write."""
        document = _document(text)
        log = document["log"]
        return cls(
            segments=int(document["segments"]),
            launches=int(document["launches"]),
            remaining=tuple(int(segment) for segment in document["remaining"]),
            flags=tuple(ValidityFlag(**flag) for flag in document["flags"]),
            log=AttemptLog(
                tuple(log["command"]),
                dict(log["environment"]),
                str(log["text"]),
                log.get("telemetry"),
                float(log.get("wall_seconds", 0.0)),
                parse_facts(str(log.get("facts", ""))),
            ),
        )


def _document(text: bytes) -> dict[str, Any]:
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("it is of another version of the spool")
    return document


def write_manifest(directory: Path, assignment: Assignment) -> None:
    """Say durably whose launches the directory holds. Raises OSError."""
    document = {"version": _VERSION, **assignment.to_json()}
    durable.write_atomically(directory / MANIFEST, json.dumps(document, sort_keys=True).encode())


def read_lease(directory: Path) -> tuple[AttemptKey, bytes] | None:
    """Whose attempt a directory holds, and the secret of its lease; None: its manifest was never finished.

    A release that knew no secrets left none: it is b"" then, and the server takes nothing of the attempt.
    """
    try:
        document = _document((directory / MANIFEST).read_bytes())
        return AttemptKey(**document["key"]), bytes.fromhex(document.get("write_secret", ""))
    except (OSError, ValueError, KeyError, TypeError, WireError):
        return None


def read_whole_attempt(directory: Path) -> tuple[Seal, dict[int, int]] | str:
    """The seal and the sizes in bytes of the remaining segments, or why the attempt is not whole."""
    try:
        seal = Seal.from_json((directory / SEAL).read_bytes())
    except FileNotFoundError:
        return "the agent ended before it was complete"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"its seal cannot be read ({error})"
    try:
        sizes = {s: read_segment_header(directory / segment_name(s)).file_bytes for s in seal.remaining}
    except StorageError as error:
        return str(error)
    return seal, sizes
