"""Opening a state folder: for one process alone, and then what an earlier server left is taken up.

Servers that share a database and a folder of records each have a state folder of their own.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay_core.files.durable import storage_errors
from assay_core.files.private_folders import take_state_folder
from assay_core.records.campaign import AttemptState
from assay_server.campaigns.ingest.lost_records import look_for_lost_records
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import live_keys
from assay_server.clock import wall_ms
from assay_server.database.opening import AskedDatabase, open_database, open_peers
from assay_server.state_lock import locked_state
from assay_server.store.peers import Peers
from assay_server.store.protocols import KnownFiles
from assay_server.store.set_aside import warn_of
from assay_server.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from assay_server.store.postgresql.store import PostgresqlStore


@dataclass(frozen=True)
class OpenedState:
    """The database that a server works on, and the servers beside it."""

    database: SqliteStore | PostgresqlStore
    peers: Peers


def opened_state(state: Path, asked: AskedDatabase, resources: contextlib.ExitStack) -> OpenedState:
    """What is behind a state folder; ``resources`` closes it. Raises StorageError and ParameterError."""
    with storage_errors(state):
        take_state_folder(state)
    resources.enter_context(locked_state(state))
    database = open_database(state, asked, alone=True)
    resources.callback(database.close)
    database.require_sound()
    peers = open_peers(state, asked)
    resources.callback(peers.close)
    return OpenedState(database, peers)


# Where other servers may write, only what is older is swept: publishing takes seconds, an outage hours.
SWEPT_AFTER_SECONDS = 86_400.0


def recover(coordinator: Coordinator, *, alone: bool = True) -> None:
    """Take up what earlier servers left; ``alone``: no other server is there, which has done so.

    Begins an epoch of tokens, cleans up the files, and restarts every lease's clock. Campaigns from an
    earlier release that this release cannot compile fail here.
    """
    if not alone:
        return
    sweep(coordinator)
    with coordinator.schedule() as schedule:
        schedule.store.begin_epoch(wall_ms())
        schedule.extend_all()
        schedule.mend_clocks()
        schedule.fail_uncompiled()
        schedule.store.release_ended()
    look_for_lost_records(coordinator)


def sweep(coordinator: Coordinator) -> None:
    """Clean up the files that no server needs. In a folder of several servers only what is old."""
    with coordinator.snapshot() as store:
        unended = store.attempts_in((AttemptState.LEASED, AttemptState.PUBLISHING, AttemptState.EXPIRED))
        known = KnownFiles(
            live=live_keys(unended),
            publishing=[each.key for each in unended if each.state is AttemptState.PUBLISHING],
            published=[piece.file for piece in store.published_slices()],
            campaigns={campaign.campaign_id for campaign in store.campaigns()},
            has_attempt=lambda *key: store.attempt(*key) is not None,
        )
        least_age = SWEPT_AFTER_SECONDS if coordinator.peers.shared else 0.0
        moved = coordinator.records.sweep(known, least_age)
    if moved is not None:
        warn_of(moved)
