"""The files next to the segments of a spooled attempt: its manifest, and its seal once it is complete."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_agent.spool.segments import DamagedSegmentError, file_bytes, read_segment_header
from assay_core.files import durable
from assay_core.records.attempt import AttemptKey, AttemptLog, bounded_text
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.wire import WireError
from assay_core.records.work import Work

MANIFEST = "manifest.json"
SEAL = "seal.json"
_VERSION = 1


def segment_name(segment: int) -> str:
    """The file name of a segment."""
    return f"segment-{segment:08d}.seg"


@dataclass(frozen=True)
class Seal:
    """Totals of a complete attempt; ``remaining`` are the segments not acknowledged when it was sealed."""

    segments: int
    launches: int
    remaining: tuple[int, ...]
    flags: tuple[ValidityFlag, ...]
    log: AttemptLog

    def to_json(self) -> bytes:
        log = self.log
        document = {
            "version": _VERSION,
            "segments": self.segments,
            "launches": self.launches,
            "remaining": self.remaining,
            "flags": [dataclasses.asdict(flag) for flag in self.flags],
            "log": {
                "command": log.command,
                "environment": dict(log.environment),
                "text": bounded_text(log.text),
                "telemetry": log.telemetry,
                "wall_seconds": log.wall_seconds,
                "facts": log.facts_json,
            },
        }
        return json.dumps(document, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Seal:
        """Raises ValueError, KeyError or TypeError for anything that :meth:`to_json` did not write."""
        document = _document(text)
        log = document["log"]
        telemetry = log.get("telemetry")
        return cls(
            segments=int(document["segments"]),
            launches=int(document["launches"]),
            remaining=tuple(int(segment) for segment in document["remaining"]),
            flags=tuple(ValidityFlag(**flag) for flag in document["flags"]),
            log=AttemptLog(
                tuple(log["command"]),
                dict(log["environment"]),
                str(log["text"]),
                "" if telemetry is None else json.dumps(telemetry),
                float(log.get("wall_seconds", 0.0)),
                str(log.get("facts", "")),
            ),
        )


def _document(text: bytes) -> dict[str, Any]:
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError("it has another version of the spool")
    return document


def write_manifest(directory: Path, work: Work) -> None:
    """Record durably whose launches the directory holds. Raises OSError."""
    document = {"version": _VERSION, **dataclasses.asdict(work), "write_secret": work.write_secret.hex()}
    text = json.dumps(document, sort_keys=True, default=str)  # a recording's path
    durable.write_atomically(directory / MANIFEST, text.encode())


def read_lease(directory: Path) -> tuple[AttemptKey, bytes] | None:
    """The attempt in a directory, and the secret of its lease; None: its manifest was never finished."""
    try:
        document = _document((directory / MANIFEST).read_bytes())
        return AttemptKey(**document["key"]), bytes.fromhex(document["write_secret"])
    except (OSError, ValueError, KeyError, TypeError, WireError):
        return None


@dataclass(frozen=True)
class Incomplete:
    """Why an attempt on the disk cannot be sent; ``damaged``: its files that are not as they were written."""

    why: str
    damaged: tuple[tuple[Path, str], ...] = ()


def read_whole_attempt(directory: Path) -> tuple[Seal, dict[int, int]] | Incomplete:
    """The seal and the sizes in bytes of the remaining segments, or why the attempt is incomplete."""
    try:
        seal = Seal.from_json((directory / SEAL).read_bytes())
    except FileNotFoundError:
        return Incomplete("the agent ended before it was complete")
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"its seal cannot be read ({error})"
        return Incomplete(why, ((directory / SEAL, why),))
    sizes: dict[int, int] = {}
    damaged: list[DamagedSegmentError] = []
    for segment in seal.remaining:
        try:
            sizes[segment] = file_bytes(read_segment_header(directory / segment_name(segment)))
        except DamagedSegmentError as error:
            damaged.append(error)
    if damaged:
        return Incomplete(str(damaged[0]), tuple((error.path, error.cause) for error in damaged))
    return seal, sizes
