"""Opening a state folder: for one process alone, and then what an earlier server left is taken up.

Servers that stand by for one another share a database and a place of records, and each has a state folder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from assay_core.files.durable import storage_errors, write_atomically
from assay_core.files.private_folders import take_state_folder
from assay_server.campaigns.ingest.lost_records import look_for_lost_records, sweep
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.clock import wall_ms
from assay_server.database.opening import AskedDatabase, awaited_lead_of, open_database
from assay_server.state_lock import locked_state
from assay_server.store.sqlite import SqliteStore, written_back

if TYPE_CHECKING:
    from assay_server.store.postgresql.store import PostgresqlStore


def opened_state(
    state: Path,
    settings: AskedDatabase,
    resources: contextlib.ExitStack,
    is_ending: Callable[[], bool],
    standing_by: Callable[[], contextlib.AbstractContextManager[None]],
) -> SqliteStore | PostgresqlStore:
    """The database of a state folder, once this server leads it; ``resources`` closes it.

    Raises StorageError and ParameterError, and StandbyEndedError if it was asked to end while it stood by.
    """
    with storage_errors(state):
        take_state_folder(state)
    resources.enter_context(locked_state(state))
    lead = awaited_lead_of(state, settings, is_ending, standing_by)
    try:
        database = open_database(state, settings, lead)
    except BaseException:
        if lead is not None:
            lead.release()
        raise
    resources.callback(database.close)
    database.require_sound()
    if isinstance(database, SqliteStore):
        resources.enter_context(written_back(database.write_back))
    return database


def recover(coordinator: Coordinator) -> None:
    """Take up what an earlier server left.

    Begins an epoch of tokens, cleans up the files, and restarts every lease's clock.
    """
    sweep(coordinator)
    with coordinator.schedule() as schedule:
        schedule.store.begin_epoch(wall_ms())
        schedule.extend_all()
        schedule.mend_clocks()
    look_for_lost_records(coordinator)


@contextlib.contextmanager
def address_file(path: Path, addresses: tuple[str, ...]) -> Iterator[None]:
    """The file lists the addresses, one per line, while the server listens."""
    with storage_errors(path):
        write_atomically(path, "".join(f"{address}\n" for address in addresses).encode())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
