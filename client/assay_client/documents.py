"""What the server tells, as plain dictionaries: what ``--json`` prints and notebooks work on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from assay_protos import campaign_pb2, common_pb2


def campaign_document(
    status: campaign_pb2.CampaignStatus, *, with_runs: bool = True, listed: bool = False
) -> dict[str, Any]:
    """A campaign: id, name, state, synthetic mark, counts of runs and slices, failure, and its runs.

    ``listed``: as one of many, which have no runs and are not counted by slices.
    """
    document: dict[str, Any] = {
        "campaign_id": status.campaign_id,
        "name": status.name,
        "state": status.state,
        "synthetic": status.synthetic,
        "runs_total": status.runs_total,
        "runs_done": status.runs_done,
        "runs_failed": status.runs_failed,
        "runs_running": status.runs_running,
        "failure": _failure(status.failure) if status.HasField("failure") else None,
    }
    if not listed:
        document |= {name: getattr(status, name) for name in ("slices", "slices_done", "retries")}
        document["waiting"] = [
            {"reason": each.reason, "first_run_id": each.first_run_id, "runs": each.runs}
            for each in status.waiting
        ]
    document["resting"] = rest_documents(status.resting)
    if with_runs and not listed:
        document["runs"] = [run_document(run) for run in status.runs]
    return document


def rest_documents(rests: Iterable[campaign_pb2.SlotRest]) -> list[dict[str, Any]]:
    """Slots that take no runs for a while, for how long still, and why."""
    return [
        {
            "agent": rest.agent,
            "slot": rest.slot,
            "failures": rest.failures,
            "remaining_ms": rest.remaining_ms,
            "failure": _failure(rest.failure),
        }
        for rest in rests
    ]


def run_document(run: campaign_pb2.RunStatus) -> dict[str, Any]:
    """A run: what it measures, where it stands, its validity flags and why it failed."""
    return {
        "run_id": run.run_id,
        "workload": run.workload,
        "device_kind": run.device_kind,
        "level": run.level,
        "condition": _condition(run.condition),
        "repeat": run.repeat,
        "state": run.state,
        "launches": run.launches,
        "slices": run.slices,
        "slices_done": run.slices_done,
        "attempts": run.attempts,
        "retries": run.retries,
        "agent": run.agent,
        "waiting_for": run.waiting_for,
        "flags": [_flag(flag) for flag in run.flags],
        "failure": _failure(run.failure) if run.HasField("failure") else None,
    }


def changed_document(changed: campaign_pb2.ChangedFile) -> dict[str, Any]:
    """A published file that is not what was published: its run, its name, and "missing", "changed" or so."""
    return {"run_id": changed.run_id, "file": changed.file, "what": changed.what}


def set_aside_document(moved: campaign_pb2.SetAside) -> dict[str, Any]:
    """Files that the server moved out of the way: where to, why, when, how many, and the first names."""
    return {
        "folder": moved.folder,
        "reason": moved.reason,
        "set_aside_at": _time(moved.set_aside_at_ms),
        "files": moved.files,
        "bytes": moved.bytes,
        "names": list(moved.names),
    }


def run_detail_document(detail: campaign_pb2.RunDetail) -> dict[str, Any]:
    """A run with every attempt: command, environment, log, times, failure, and the files it published."""
    return {
        **run_document(detail.run),
        "attempts": [_attempt(attempt) for attempt in detail.attempts],
        "files": list(detail.files),
    }


def _attempt(attempt: campaign_pb2.AttemptDetail) -> dict[str, Any]:
    return {
        "slice": attempt.key.slice,
        "attempt": attempt.key.attempt,
        "state": attempt.state,
        "agent": attempt.agent,
        "slot": attempt.slot,
        "leased_at": _time(attempt.leased_at_ms),
        "ended_at": _time(attempt.ended_at_ms),
        "launches": attempt.launches,
        "failure": _failure(attempt.failure) if attempt.HasField("failure") else None,
        "command": list(attempt.command),
        "environment": dict(sorted(attempt.environment.items())),
        "log": attempt.log,
        "wall_seconds": attempt.wall_seconds or None,
        "telemetry": json.loads(attempt.telemetry_json) if attempt.telemetry_json else None,
        "facts": json.loads(attempt.facts_json) if attempt.facts_json else None,
    }


def _time(milliseconds: int) -> str | None:
    if not milliseconds:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _condition(condition: common_pb2.Condition) -> dict[str, Any]:
    return {
        "cache": condition.cache or None,
        "clock": condition.clock or None,
        "sm_percent": condition.sm_percent or None,
        **({"sm_share": condition.sm_share} if condition.sm_share else {}),
    }


def _flag(flag: common_pb2.ValidityFlag) -> dict[str, Any]:
    return {"name": flag.name, "detail": flag.detail, "invalidates": flag.invalidates}


def _failure(failure: common_pb2.Failure) -> dict[str, Any]:
    return {
        "failure_class": failure.failure_class,
        "subject": failure.subject,
        "cause": failure.cause,
        "remedy": failure.remedy,
        "retryable": failure.retryable,
    }
