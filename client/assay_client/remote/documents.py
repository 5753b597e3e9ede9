"""The server's answers as plain dictionaries, for ``--json`` and notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from assay_core.records.campaign import (
    AgentSpool,
    AttemptState,
    CampaignStatus,
    ChangedFile,
    Estimate,
    RunStatus,
    SetAside,
    SlotRest,
)
from assay_core.records.failure import Failure
from assay_core.records.identity import Identities, TokenMade
from assay_core.records.lab import AuditEntry
from assay_core.records.runs import AttemptDetail, RunDetail, RunsAction, RunsAnswer, RunsRequest


def campaign_document(
    status: CampaignStatus, *, with_runs: bool = True, listed: bool = False
) -> dict[str, Any]:
    """A campaign: its name, state, owner and project, counts of runs and slices, failure, and its runs.

    ``listed``: as one of many, without its runs and its counts of slices.
    """
    document: dict[str, Any] = {
        "campaign_id": status.campaign_id,
        "name": status.name,
        "state": status.state,
        "owner": status.owner,
        "owner_name": status.owner_name,
        "project": status.project,
        "synthetic": status.synthetic,
        "runs_total": status.runs_total,
        "runs_done": status.runs_done,
        "runs_failed": status.runs_failed,
        "runs_running": status.runs_running,
        "runs_cancelled": status.runs_cancelled,
        "runs_paused": status.runs_paused,
        "paused": status.paused,
        "failure": _optional(status.failure),
    }
    if not listed:
        document |= {name: getattr(status, name) for name in ("slices", "slices_done", "retries")}
        document["gpu_hours"] = status.gpu_seconds / 3600
        document["eta"] = estimate_document(status.eta)
        document["waiting"] = [
            {"kind": each.kind, "reason": each.reason, "first_run_id": each.first_run_id, "runs": each.runs}
            for each in status.waiting
        ]
    document["resting"] = rest_documents(status.resting)
    if with_runs and not listed:
        document["runs"] = [run_document(run) for run in status.runs]
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


def request_document(action: RunsAction, asked: RunsRequest, answer: RunsAnswer) -> dict[str, Any]:
    """What was asked of runs, how many runs that changed, and how many attempts it ended or left running."""
    return {
        "action": action,
        "workload": asked.workload or None,
        "run_id": asked.run_id or None,
        "at_once": asked.at_once,
        "runs_changed": answer.runs_changed,
        "attempts_ended": answer.attempts_ended,
        "attempts_running": answer.attempts_running,
    }


def rest_documents(rests: Iterable[SlotRest]) -> list[dict[str, Any]]:
    """Slots that take no runs for a while, for how much longer, and why."""
    return [
        {
            "agent": rest.agent,
            "slot": rest.slot,
            "failures": rest.failures,
            "remaining_ms": rest.remaining_ms,
            "failure": rest.failure.to_dict(),
        }
        for rest in rests
    ]


def run_document(run: RunStatus) -> dict[str, Any]:
    """A run: what it measures, its state, its validity flags and why it failed."""
    return {
        "run_id": run.run_id,
        "workload": run.workload,
        "device_kind": run.device_kind,
        "level": run.level,
        "condition": run.condition.to_dict(),
        "repeat": run.repeat,
        "state": run.state,
        "launches": run.launches,
        "slices": run.slices,
        "slices_done": run.slices_done,
        "attempts": run.attempts,
        "retries": run.retries,
        "agent": run.agent,
        "waiting_for": run.waiting_for,
        "paused": run.paused,
        "flags": [asdict(flag) for flag in run.flags],
        "failure": _optional(run.failure),
    }


def changed_document(changed: ChangedFile) -> dict[str, Any]:
    """A published file that has changed since: its run, name, and "missing", "changed" or "unreadable"."""
    return {"run_id": changed.run_id, "file": changed.file, "what": changed.what}


def spool_document(spool: AgentSpool) -> dict[str, Any]:
    """An agent's spool that is full (``waits``: no run begins there) or found ``damaged`` files."""
    return asdict(spool)


def set_aside_document(moved: SetAside) -> dict[str, Any]:
    """Files that the server moved aside: where to, why, when, how many, and the first names."""
    return {
        "folder": moved.folder,
        "reason": moved.reason,
        "set_aside_at": moment(moved.set_aside_at_ms),
        "files": moved.files,
        "bytes": moved.bytes,
        "names": list(moved.names),
    }


def run_detail_document(detail: RunDetail) -> dict[str, Any]:
    """A run with every attempt: command, environment, log, times, failure, and the files it published."""
    return {
        **run_document(detail.run),
        "attempts": [_attempt(attempt) for attempt in detail.attempts],
        "files": list(detail.files),
    }


def _attempt(attempt: AttemptDetail) -> dict[str, Any]:
    log = attempt.log
    return {
        "slice": attempt.key.slice_index,
        "attempt": attempt.key.attempt,
        "state": attempt.state,
        "counts": attempt.state is AttemptState.PUBLISHED,
        "agent": attempt.agent,
        "slot": attempt.slot,
        "leased_at": moment(attempt.leased_at_ms),
        "ended_at": moment(attempt.ended_at_ms),
        "launches": attempt.launches,
        "failure": _optional(attempt.failure),
        "command": list(log.command),
        "environment": dict(sorted(log.environment.items())),
        "log": log.text,
        "wall_seconds": log.wall_seconds or None,
        "telemetry": log.telemetry,
        "facts": json.loads(log.facts_json) if log.facts_json else None,
    }


def _optional(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else failure.to_dict()


def moment(milliseconds: int) -> str | None:
    """A Unix time in ms in ISO 8601; None for 0."""
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def token_document(made: TokenMade) -> dict[str, Any]:
    """A new join token: its text, id, the authority's fingerprint, and until when it can be used."""
    return {
        "token": made.token,
        "token_id": made.token_id,
        "fingerprint": made.fingerprint,
        "expires_at": moment(made.expires_at_ms),
        "join_port": made.join_port or None,
        "join_address": made.join_address or None,
    }


def identities_document(found: Identities) -> dict[str, Any]:
    """Identities with their certificates that have not expired, and the tokens that can still be used."""
    return {
        "identities": [
            {
                "identity_id": each.identity_id,
                "kind": str(each.kind),
                "name": each.name,
                "role": str(each.role),
                "project": each.project,
                "labels": list(each.labels),
                "created_at": moment(each.created_at_ms),
                "revoked_at": moment(each.revoked_at_ms),
                "certificates": [
                    {
                        "serial": one.serial,
                        "issued_at": moment(one.issued_at_ms),
                        "expires_at": moment(one.expires_at_ms),
                        "withdrawn_at": moment(one.withdrawn_at_ms),
                    }
                    for one in each.certificates
                ],
            }
            for each in found.identities
        ],
        "tokens": [
            {
                "token_id": each.token_id,
                "role": str(each.role),
                "name": each.name,
                "project": each.project,
                "labels": list(each.labels),
                "uses_left": each.uses_left,
                "expires_at": moment(each.expires_at_ms),
            }
            for each in found.tokens
        ],
    }


def audit_document(entry: AuditEntry) -> dict[str, Any]:
    """One changing call: who, when, from where, about what, with which outcome."""
    values = asdict(entry)
    del values["at_ms"]
    return {"at": moment(entry.at_ms), **values}
