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
from assay_server.campaigns.ingest.lost_records import look_for_lost_records
from assay_server.campaigns.ingest.sweeping import sweep
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.clock import wall_ms
from assay_server.database.opening import AskedDatabase, open_database, open_peers
from assay_server.peers.interface import Peers
from assay_server.state_lock import locked_state
from assay_server.store.connections.write_back import written_back
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
    if isinstance(database, SqliteStore):
        resources.enter_context(written_back(database.write_back))
    peers = open_peers(state, asked)
    resources.callback(peers.close)
    return OpenedState(database, peers)


def recover(coordinator: Coordinator, *, alone: bool = True) -> None:
    """Take up what earlier servers left; ``alone``: no other server is there, which has done so.

    Begins an epoch of tokens, cleans up the files, and restarts every lease's clock.
    """
    if not alone:
        return
    sweep(coordinator)
    with coordinator.schedule() as schedule:
        schedule.store.begin_epoch(wall_ms())
        schedule.extend_all()
        schedule.mend_clocks()
        schedule.store.release_ended()
    look_for_lost_records(coordinator)
