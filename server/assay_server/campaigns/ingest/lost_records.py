"""Files of records that are missing, changed, unreadable or unknown, and what becomes of them.

Published files that are missing or changed are set aside and logged, and their slices measured again. At the
start the files that no server needs are removed, and unknown ones set aside.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from assay_core.program_log import log_about
from assay_core.records.campaign import ENDED_CAMPAIGNS, AttemptState, ChangedFile, FileChange
from assay_core.records.failure import failure
from assay_sampling.running.failures import FailureClass
from assay_server.analysis.runs.intact import what_changed
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import UNENDED_ATTEMPTS
from assay_server.store.model import Slice
from assay_server.store.quarantine_files import warn_of
from assay_server.store.record_store import KnownFiles
from assay_server.store.sql import SqlTransaction

_log = logging.getLogger(__name__)


def lose_records(coordinator: Coordinator, changed: Collection[ChangedFile]) -> None:
    """Remove these files from their campaigns, whose runs are then made again as long as tries are left.

    Raises StorageError.
    """
    for piece, change in _pieces(coordinator, changed):
        _lose(coordinator, piece, change)


def look_again(coordinator: Coordinator, named: Collection[ChangedFile]) -> list[ChangedFile]:
    """What this server finds of files that an analysis found missing, changed or unreadable.

    A worker without the shared folder misses every file, a disk may give a file the second time, and of a
    bucket's file it may be the copy that cannot be read. Files that are as published are left out; names are
    relative to the folder of records. Raises StorageError.
    """
    changes = []
    for piece, was in _pieces(coordinator, named):
        with coordinator.records.reading(piece.file) as path:
            # Who missed a file says nothing of its bytes; otherwise this process's memory of them may be old.
            now = what_changed(path, piece.content_hash, afresh=was.what is not FileChange.MISSING)
        if now is not None:
            changes.append(ChangedFile(piece.run_id, piece.file, now))
    return changes


def _pieces(coordinator: Coordinator, named: Collection[ChangedFile]) -> list[tuple[Slice, ChangedFile]]:
    """The published slices that these files are of, each with its file as it was named.

    A file's name in its run is its own, wherever the one who found it has read it.
    """
    by_name = {(each.run_id, Path(each.file).name): each for each in named}
    with coordinator.snapshot() as store:
        slices = [piece for run_id in sorted({run for run, _ in by_name}) for piece in store.slices(run_id)]
    named_slices = ((piece, by_name.get((piece.run_id, Path(piece.file).name))) for piece in slices)
    return [(piece, change) for piece, change in named_slices if piece.file and change is not None]


def _lose(coordinator: Coordinator, piece: Slice, change: ChangedFile) -> None:
    with log_about(run=piece.run_id, slice=piece.index):
        _log.warning("%s is %s: its slice is measured again", _name(piece), change.what)
    # First the file: as soon as the slice waits, another attempt may publish it again.
    warn_of(coordinator.records.set_aside(piece.file))
    cause = f"{_name(piece)} is {change.what} since it was published"
    why = failure(FailureClass.RECORDS_CHANGED, f"run {piece.run_id}", cause)
    with coordinator.schedule() as schedule:
        schedule.lose_record(piece, why)


def look_for_lost_records(coordinator: Coordinator) -> None:
    """At the start, check that each published file exists with its size; an analysis checks the hashes.

    Lost files of open campaigns are measured again; those of ended campaigns are logged.
    """
    lost: list[ChangedFile] = []
    with coordinator.snapshot() as store:
        pieces = [piece for piece in store.published_slices() if piece.file]
        sizes = coordinator.records.sizes([piece.file for piece in pieces])
        for piece in pieces:
            size = sizes.get(piece.file)
            if size == piece.file_bytes:
                continue
            what = FileChange.MISSING if size is None else FileChange.CHANGED
            change = ChangedFile(piece.run_id, piece.file, what)
            if _has_ended(store, piece):
                _log.warning("%s, of a campaign that has ended, is %s", _name(piece), change.what)
                coordinator.changed_records.note(replace(change, file=_name(piece)))
            else:
                lost.append(change)
    lose_records(coordinator, lost)


def changed_files(coordinator: Coordinator, campaign_id: str) -> list[ChangedFile]:
    """The published files of a campaign that are missing or changed, by their hashes."""
    with coordinator.snapshot() as store:
        pieces = [p for run in store.runs(campaign_id) for p in store.slices(run.run_id) if p.file]
    changes = []
    for piece in pieces:
        with coordinator.records.reading(piece.file) as path:
            what = what_changed(path, piece.content_hash)
        if what is not None:
            with log_about(campaign=campaign_id, run=piece.run_id, slice=piece.index):
                _log.warning("%s, which the report was made from, is %s", _name(piece), what)
            changes.append(ChangedFile(piece.run_id, _name(piece), what))
            coordinator.changed_records.note(changes[-1])
        else:
            coordinator.changed_records.forget(_name(piece))
    return changes


def _name(piece: Slice) -> str:
    return f"records/{piece.file}"


def _has_ended(store: SqlTransaction, piece: Slice) -> bool:
    run = store.run(piece.run_id)
    campaign = None if run is None else store.campaign(run.campaign_id)
    return campaign is None or campaign.state in ENDED_CAMPAIGNS


def sweep(coordinator: Coordinator) -> None:
    """Clean up the files that no server needs, before this one writes any."""
    with coordinator.snapshot() as store:
        unended = store.attempts_in(UNENDED_ATTEMPTS)  # their segments may still be needed
        needed = KnownFiles(
            live=[each.key for each in unended],
            publishing=[each.key for each in unended if each.state is AttemptState.PUBLISHING],
            published=[piece.file for piece in store.published_slices()],
            campaigns={campaign.campaign_id for campaign in store.campaigns()},
            has_attempt=lambda *key: store.attempt(*key) is not None,
            bundles={kept_bundle.file for kept_bundle in store.bundles()},
        )
        moved = coordinator.records.sweep(needed)
    warn_of(moved)
