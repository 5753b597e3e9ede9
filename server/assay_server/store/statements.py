"""What statements of several parts have in common. Built once: to build one costs more than to run it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa

from assay_core.records.campaign import CampaignState
from assay_server.store import tables
from assay_server.store.model import OPEN_RUNS, Hold, Slice

_A, _C, _R = tables.attempts.c, tables.campaigns.c, tables.runs.c
SLICE = tuple(tables.slices.c[item.name] for item in dataclasses.fields(Slice))


def one_of(column: sa.ColumnElement[str], states: Sequence[str]) -> sa.ColumnElement[bool]:
    """Whether a state is one of these, which are written into the statement itself."""
    return column.in_([sa.literal_column(f"'{state}'") for state in states])


# Whether a campaign is there; others are being brought in, and nobody knows of them.
IS_THERE = _C.arriving == sa.literal_column("''")
# Whether slots may have slices of a campaign: it runs and is not paused.
RUNS_NOW = sa.and_(one_of(_C.state, (CampaignState.RUNNING,)), sa.not_(_C.paused), IS_THERE)
OF_CAMPAIGN = _R.campaign_id == sa.bindparam("campaign_id")
# Whether a run has not ended.
IS_OPEN = one_of(_R.state, OPEN_RUNS)
# Whether a run is paused itself: its holds are a JSON list of names.
IS_PAUSED = sa.cast(_R.holds, sa.Text).contains(f'"{Hold.PAUSED}"')
# How long an attempt's tools ran; if its agent did not report it, how long it had its lease.
ATTEMPT_SECONDS = sa.case(
    (_A.wall_seconds > 0, _A.wall_seconds), else_=(_A.ended_at_ms - _A.leased_at_ms) / 1000.0
)
# How many GPUs an attempt has: those of a gang, too.
GPUS = 1 + sa.func.json_array_length(_A.gang)
