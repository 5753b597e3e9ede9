"""Which runs of a campaign can never be measured by the one agent of a private server: ``assay run``. Pure.

No other agent ever comes there, and nobody enlarges a budget. Most reasons for waiting end by themselves,
though: a light run comes first, a person resumes a run, a maintenance window ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_core.records.campaign import QueueKind

_NEVER_MEASURED = frozenset(
    {QueueKind.NO_AGENT, QueueKind.NOT_OFFERED, QueueKind.AGENT_AWAY, QueueKind.OUT_OF_SERVICE}
)
# These end with the runs that are waited for, or never, if those cannot go on.
_FOLLOWS = frozenset({QueueKind.LIGHT_RUN, QueueKind.AFTER})
# How often in a row a slot may fail before nobody waits for it any more.
_RESTS_WAITED_FOR = 3


def never_begin(status: Mapping[str, Any]) -> tuple[int, str]:
    """How many runs wait for what the agent lacks, and what the first of them needs; (0, "") if none does.

    Args:
        status: a campaign's, as :meth:`assay_client.remote.client.Client.summary` gives it.
    """
    rows = [row for row in status["waiting"] if row["kind"] in _NEVER_MEASURED]
    return sum(row["runs"] for row in rows), rows[0]["reason"] if rows else ""


def never_go_on(status: Mapping[str, Any]) -> tuple[int, str]:
    """How many runs are left, and why none of them can go on; (0, "") while one still can, or soon may.

    Args:
        status: as for :func:`never_begin`.
    """
    ended = {*_NEVER_MEASURED, QueueKind.BUDGET}  # a run that is measured now does not wait for a budget
    if all(rest["failures"] >= _RESTS_WAITED_FOR for rest in status["resting"]):
        ended.add(QueueKind.RESTING)  # else a lock or counters that another program held for a moment
    rows = status["waiting"]
    runs = status["runs_total"] - sum(status[f"runs_{state}"] for state in ("done", "failed", "cancelled"))
    causes = [row["reason"] for row in rows if row["kind"] in ended]
    all_wait = sum(row["runs"] for row in rows) == runs
    if not causes or not all_wait or any(row["kind"] not in ended | _FOLLOWS for row in rows):
        return 0, ""
    return runs, causes[0]
