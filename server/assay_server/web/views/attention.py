"""Runs of a campaign that need attention: failures first, then flags that invalidate, then the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from assay_sampling.running.validity import FLAGS
from assay_server.store.parts.runs import NotedRuns

MOST_REASONS = 50


class Severity(IntEnum):
    """How bad a reason is; the worst comes first."""

    FAILED = 0
    INVALID = 1
    REMARK = 2


@dataclass
class Reason:
    """A failure or flag with its cause, its remedy and all runs that have it."""

    severity: Severity
    name: str
    cause: str
    remedy: str
    run_ids: list[str] = field(default_factory=list)


def reasons(noted: Sequence[NotedRuns]) -> list[Reason]:
    """Every failure and flag once, the worst first, and of equally bad ones the most frequent."""
    merged: dict[tuple[str, ...], Reason] = {}
    details: dict[tuple[str, ...], set[str]] = {}
    for alike in noted:
        why = alike.failure
        if why is not None:
            reason = Reason(Severity.FAILED, why.failure_class, why.cause, why.remedy)
            key: tuple[str, ...] = ("failure", why.failure_class, why.cause, why.remedy)
            merged.setdefault(key, reason).run_ids.extend(alike.run_ids)
        for flag in alike.flags:
            severity = Severity.INVALID if flag.invalidates else Severity.REMARK
            kind = FLAGS.get(flag.name)
            meaning = (kind.cause, kind.remedy) if kind else ("", "update the server")
            key = ("flag", flag.name, severity.name)
            merged.setdefault(key, Reason(severity, flag.name, *meaning)).run_ids.extend(alike.run_ids)
            details.setdefault(key, set()).add(flag.detail)
    for key, texts in details.items():
        detail = texts.pop() if len(texts) == 1 else ""
        if detail:  # what is true of all of these runs says more than what the flag means
            merged[key].cause = detail
    return sorted(merged.values(), key=lambda reason: (reason.severity, -len(reason.run_ids)))
