"""Runs with what is known of their attempts and slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assay_core.records.campaign import AttemptState
from assay_server.store.model import Run, RunOverview, SliceState
from assay_server.store.values.fields import Row

_FRUITLESS = (AttemptState.FAILED, AttemptState.SUPERSEDED, AttemptState.CANCELLED)


def overview_of(run: Run, attempts: Sequence[Row], slices: Mapping[str, int]) -> RunOverview:
    """``slices``: their number by state.

    Launches are those of each slice's newest attempt, if known.
    """
    newest = {row["slice"]: row for row in attempts}
    live = [row for row in newest.values() if row["state"] not in _FRUITLESS]
    launches = sum(max(row["launches"], row["launches_spooled"]) for row in live)
    agent = attempts[-1]["agent_name"] if attempts else ""
    return RunOverview(
        run,
        len(attempts),
        agent,
        launches,
        slices=sum(slices.values()),
        slices_done=slices.get(SliceState.DONE, 0),
        retries=len(attempts) - len(newest),
    )
