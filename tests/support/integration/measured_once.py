"""Whether a campaign in a state folder of ``assay run`` measured each of its slices once."""

from __future__ import annotations

from pathlib import Path

from assay_core.records.campaign import AttemptState
from assay_server.store.sqlite import SqliteStore


def lost_attempts(state: Path, campaign_id: str) -> int:
    """How many attempts were lost; fails if one came after its slice was published, or a slice never was.

    A kill costs the attempt that it falls into, and never one that was published.
    """
    store = SqliteStore(state / "server" / "metadata.sqlite")
    lost = 0
    try:
        with store.snapshot() as read:
            for run in read.runs(campaign_id):
                attempts = sorted(read.attempts(run.run_id), key=lambda each: each.key.token)
                for piece in read.slices(run.run_id):
                    of_slice = [a for a in attempts if a.key.slice_index == piece.index]
                    states = [attempt.state for attempt in of_slice]
                    assert states[-1:] == [AttemptState.PUBLISHED], (run.run_id, states)
                    assert states.count(AttemptState.PUBLISHED) == 1, (run.run_id, states)
                    lost += len(states) - 1
    finally:
        store.close()
    return lost
