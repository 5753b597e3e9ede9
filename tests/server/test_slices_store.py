"""What the store tells about slices: their times, which were never tried, and what a run has cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignState
from assay_sampling.errors import StorageError
from assay_server.campaign_file.reading import compile_campaign
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.store.model import Attempt, Campaign, Slice, SliceTime
from assay_server.store.sql import MetadataStore
from tests.support.server.campaign_files import load_campaign
from tests.support.server.metadata_stores import METADATA_STORES

TEXT = """\
campaign: lab
gpus: [V100]
detailed: {first: 1500, slice_launches: 500, sets: features}
workloads: [{name: w, command: [train]}]
"""
RUN, LIGHT = "lab-1.0000", "lab-1.0001"


@pytest.fixture(params=METADATA_STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    made = METADATA_STORES[request.param](tmp_path)
    spec = load_campaign(TEXT, "c.yaml")
    plan = plan_campaign(spec, "lab-1", "/base", "c.yaml")
    running = CampaignState.RUNNING
    campaign = Campaign("lab-1", "lab", 1, False, running, TEXT, "c", "/base", compile_campaign(spec), 0)
    with made.transaction() as transaction:
        transaction.add_campaign(campaign, plan.runs, plan.slices)
    yield made
    made.close()


def attempt(
    piece: int, token: int, state: AttemptState, seconds: float = 0.0, *, run_id: str = RUN, ended: int = 4000
) -> Attempt:
    return Attempt(
        AttemptKey(run_id, piece, token, token), state, "a", "box", "s", f"gpu-{token}", 1500, 9000,
        ended_at_ms=ended, log=AttemptLog(wall_seconds=seconds),
    )  # fmt: skip


def test_times_are_those_of_published_detailed_slices_newest_first(store: MetadataStore) -> None:
    with store.transaction() as write:
        for one in (
            attempt(0, 1, AttemptState.FAILED, 9.0),
            attempt(0, 2, AttemptState.PUBLISHED, 1.25),
            attempt(1, 3, AttemptState.PUBLISHED),
            attempt(2, 4, AttemptState.LEASED, ended=0),
            attempt(0, 5, AttemptState.PUBLISHED, 7.0, run_id=LIGHT),
        ):
            write.add_attempt(one)
        for piece in write.slices(RUN)[:2]:
            write.save_slice(replace(piece, launches=500 - piece.index))
    with store.snapshot() as read:
        run = read.run(RUN)
        assert run is not None and run.command is not None
        same = (RUN, "w", "v100", run.command, run.counters)
        # The agent of the second did not say how long its tool ran: 1,500 to 4,000 ms is what is known.
        assert read.slice_times(9) == [SliceTime(*same, 500, 499, 2.5), SliceTime(*same, 0, 500, 1.25)]
        assert read.slice_times(1) == [SliceTime(*same, 500, 499, 2.5)]
        # What has not ended has not cost anything yet.
        assert read.seconds_spent(RUN) == 9.0 + 1.25 + 2.5
        assert read.seconds_spent("nothing") == 0.0
        assert (read.untried_from(RUN), read.untried_from(LIGHT), read.untried_from("nothing")) == (3, 1, 0)


def test_slices_are_replaced_from_an_index_on_unless_one_was_tried(store: MetadataStore) -> None:
    rest = [Slice(RUN, 1, 500, 700), Slice(RUN, 2, 1200, 300)]
    with store.transaction() as write:
        write.add_attempt(attempt(0, 1, AttemptState.LEASED))
        write.replace_slices(RUN, 1, rest)
    with store.snapshot() as read:
        assert read.slices(RUN) == [Slice(RUN, 0, 0, 500), *rest]
        assert len(read.slices(LIGHT)) == 1
    with store.transaction() as write:
        write.replace_slices(RUN, 2, [])
    with store.snapshot() as read:
        assert read.slices(RUN) == [Slice(RUN, 0, 0, 500), rest[0]]
    with pytest.raises(StorageError), store.transaction() as write:
        write.replace_slices(RUN, 0, [])
    with store.snapshot() as read:
        assert len(read.slices(RUN)) == 2
