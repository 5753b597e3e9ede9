"""Sweeping: the files of records that no server needs are removed, and unknown ones set aside."""

from __future__ import annotations

from assay_core.records.campaign import AttemptState
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import live_keys
from assay_server.store.quarantine_files import warn_of
from assay_server.store.record_store import KnownFiles


def sweep(coordinator: Coordinator) -> None:
    """Clean up the files that no server needs, before this one writes any."""
    with coordinator.snapshot() as store:
        unended = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED))
        known = KnownFiles(
            live=live_keys(unended),
            publishing=[each.key for each in unended if each.state is AttemptState.PUBLISHING],
            published=[piece.file for piece in store.published_slices()],
            campaigns={campaign.campaign_id for campaign in store.campaigns()},
            has_attempt=lambda *key: store.attempt(*key) is not None,
            bundles={kept_bundle.file for kept_bundle in store.bundles()},
        )
        moved = coordinator.records.sweep(known)
    if moved is not None:
        warn_of(moved)
