"""The server's answers as plain dictionaries, for ``--json`` and notebooks."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

from assay_core.records.campaign import AttemptState, CampaignStatus, Estimate
from assay_core.records.failure import Failure
from assay_core.records.identity import TokenMade
from assay_core.records.runs import AttemptDetail, RunDetail, RunsAction, RunsAnswer, RunsRequest
from assay_sampling.running.identity import Condition

# What a campaign's status has that documents of many campaigns do not show, or not as it is.
_NOT_OF_EACH = ("slices", "slices_done", "retries", "gpu_seconds", "eta", "waiting", "runs", "runs_next")


def document_of(record: Any, *without: str) -> dict[str, Any]:
    """The fields of a record as values of JSON; moments (``..._at_ms``) are ISO 8601 and have no unit."""
    document: dict[str, Any] = {}
    for name in (each.name for each in fields(record) if each.name not in without):
        value = getattr(record, name)
        if name == "at_ms" or name.endswith("_at_ms"):
            document[name.removesuffix("_ms")] = moment(value)
        else:
            document[name] = _plain(value)
    return document


def _plain(value: Any) -> Any:
    if isinstance(value, Failure | Condition):
        return value.to_dict()
    if is_dataclass(value):
        return document_of(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def campaign_document(
    status: CampaignStatus, *, with_runs: bool = True, listed: bool = False
) -> dict[str, Any]:
    """A campaign: its name, state, owner and project, counts of runs and slices, failure, and its runs.

    ``listed``: as one of many, without its runs and its counts of slices.
    """
    document = document_of(status, *_NOT_OF_EACH)
    if not listed:
        document |= {name: getattr(status, name) for name in ("slices", "slices_done", "retries")}
        document["gpu_hours"] = status.gpu_seconds / 3600
        document["eta"] = estimate_document(status.eta)
        document["waiting"] = [document_of(each) for each in status.waiting]
        if with_runs:
            document["runs"] = [document_of(run) for run in status.runs]
    return document


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """How long work takes yet (``remaining_ms``, null: no estimate yet), or what is missing for an estimate.

    ``at_least``: more slices may be cut while it runs. ``assumed``: in part from other GPUs, earlier
    campaigns or the assumptions of plans."""
    return {
        "remaining_ms": estimate.remaining_ms if estimate.known else None,
        "low_ms": estimate.low_ms if estimate.known else None,
        "high_ms": estimate.high_ms if estimate.known else None,
        "assumed": estimate.assumed,
        "at_least": estimate.at_least,
        "missing": estimate.missing or None,
    }


def request_document(action: RunsAction, request: RunsRequest, answer: RunsAnswer) -> dict[str, Any]:
    """What was asked of runs, how many runs that changed, and how many attempts it ended or left running."""
    return {
        "action": action,
        "workload": request.workload or None,
        "run_id": request.run_id or None,
        "at_once": request.at_once,
        "runs_changed": answer.runs_changed,
        "attempts_ended": answer.attempts_ended,
        "attempts_running": answer.attempts_running,
    }


def run_detail_document(detail: RunDetail) -> dict[str, Any]:
    """A run with every attempt: command, environment, log, times, failure, and the files it published."""
    return {
        **document_of(detail.run),
        "attempts": [_attempt(attempt) for attempt in detail.attempts],
        "files": list(detail.files),
    }


def _attempt(attempt: AttemptDetail) -> dict[str, Any]:
    log = attempt.log
    return {
        **document_of(attempt, "key", "log", "gang"),
        "slice": attempt.key.slice_index,
        "attempt": attempt.key.attempt,
        "counts": attempt.state is AttemptState.PUBLISHED,
        "command": list(log.command),
        "environment": dict(sorted(log.environment.items())),
        "log": log.text,
        "wall_seconds": log.wall_seconds or None,
        "telemetry": log.telemetry,
        "facts": json.loads(log.facts_json) if log.facts_json else None,
    }


def moment(milliseconds: int) -> str | None:
    """A Unix time in ms in ISO 8601; None for 0."""
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def token_document(made: TokenMade) -> dict[str, Any]:
    """A new join token: its text, id, the authority's fingerprint, and until when it can be used."""
    port, address = made.join_port or None, made.join_address or None
    return {**document_of(made), "join_port": port, "join_address": address}
