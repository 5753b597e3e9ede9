"""Opening a state folder: for one process alone, and then what an earlier server left is taken up."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import take_state_folder
from assay_core.records.campaign import AttemptState
from assay_server.campaigns.ingest.lost_records import look_for_lost_records
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import live_keys
from assay_server.clock import wall_ms
from assay_server.database.opening import AskedDatabase, open_database
from assay_server.state_lock import locked_state
from assay_server.store.protocols import KnownFiles
from assay_server.store.set_aside import warn_of
from assay_server.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from assay_server.store.postgresql.store import PostgresqlStore


def opened_database(
    state: Path, asked: AskedDatabase, resources: contextlib.ExitStack
) -> SqliteStore | PostgresqlStore:
    """The state folder's database, for this process alone; ``resources`` closes it. Raises StorageError."""
    with storage_errors(state):
        take_state_folder(state)
    resources.enter_context(locked_state(state))
    database = open_database(state, asked, alone=True)
    resources.callback(database.close)
    database.require_sound()
    return database


# Where other servers may write, only what is older is swept: publishing takes seconds, an outage hours.
SWEPT_AFTER_SECONDS = 86_400.0


def recover(coordinator: Coordinator, swept_after_seconds: float = 0.0) -> None:
    """Begin an epoch of tokens, clean up the files, restart every lease's clock.

    Campaigns from an earlier release that this release cannot compile fail here.
    """
    with coordinator.snapshot() as store:
        unended = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED))
        known = KnownFiles(
            live=live_keys(unended),
            publishing=[each.key for each in unended if each.state is AttemptState.PUBLISHING],
            published=[piece.file for piece in store.published_slices()],
            campaigns={campaign.campaign_id for campaign in store.campaigns()},
            has_attempt=lambda *key: store.attempt(*key) is not None,
        )
        moved = coordinator.records.sweep(known, swept_after_seconds)
    if moved is not None:
        warn_of(moved)
    with coordinator.schedule() as schedule:
        schedule.store.begin_epoch(wall_ms())
        schedule.extend_all()
        schedule.mend_clocks()
        schedule.fail_uncompiled()
        schedule.store.release_ended()
    look_for_lost_records(coordinator)
