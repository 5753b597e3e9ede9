"""Attempts, their segments, and their rows."""

from __future__ import annotations

from typing import Any

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState
from assay_server.store.model import Attempt, Segment
from assay_server.store.values.fields import Row, documents_of, failure_of, flags_of, shallow


def attempt_of(row: Row) -> Attempt:
    """The attempt of a row."""
    values = dict(row)
    key = AttemptKey(*(values.pop(name) for name in ("run_id", "slice", "attempt", "token")))
    log = AttemptLog(
        tuple(values.pop("command")),
        dict(values.pop("environment")),
        values.pop("log"),
        values.pop("telemetry"),
        values.pop("wall_seconds"),
        values.pop("facts"),
    )
    values["state"] = AttemptState(values["state"])
    values["failure"] = failure_of(values["failure"])
    values["flags"] = flags_of(values["flags"])
    values["write_secret"] = bytes.fromhex(values["write_secret"])
    values["lease_ends_at_ms"] = values.pop("deadline_ms")
    values["gang"] = tuple(values["gang"])
    return Attempt(key=key, log=log, **values)


def attempt_values(attempt: Attempt) -> dict[str, Any]:
    """The row of an attempt."""
    values = {**shallow(attempt), "state": str(attempt.state), **documents_of(attempt, "failure", "flags")}
    del values["key"], values["lease_ends_at_ms"]
    key = attempt.key
    return {
        **values,
        "deadline_ms": attempt.lease_ends_at_ms,
        "run_id": key.run_id,
        "slice": key.slice_index,
        "attempt": key.attempt,
        "token": key.token,
        "command": list(attempt.log.command),
        "environment": dict(attempt.log.environment),
        "log": attempt.log.text,
        "telemetry": attempt.log.telemetry_json,
        "wall_seconds": attempt.log.wall_seconds,
        "facts": attempt.log.facts_json,
        "write_secret": attempt.write_secret.hex(),
        "gang": list(attempt.gang),
    }


def segment_of(row: Row) -> Segment:
    """The segment of a row."""
    return Segment(**row)
