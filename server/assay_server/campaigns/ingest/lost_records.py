"""Published files that are missing or changed: sets them aside, logs them, measures their slices again."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from assay_core.program_log import log_about
from assay_core.records.campaign import ENDED_CAMPAIGNS, ChangedFile, FileChange
from assay_core.records.failure import failure
from assay_sampling.running.failures import FailureClass
from assay_server.analysis.runs.intact import what_changed
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.model import Slice
from assay_server.store.quarantine_files import warn_of
from assay_server.store.sql import SqlTransaction

_log = logging.getLogger(__name__)


def lose_records(coordinator: Coordinator, changed: Collection[ChangedFile]) -> None:
    """Remove these files from their campaigns, whose runs are then made again as long as tries are left.

    Raises StorageError.
    """
    # A file's name in its run is its own, wherever the one who found it has read it.
    by_name = {(each.run_id, Path(each.file).name): each for each in changed}
    with coordinator.snapshot() as store:
        run_ids = sorted({each.run_id for each in changed})
        pieces = [piece for run_id in run_ids for piece in store.slices(run_id) if piece.file]
    for piece in pieces:
        change = by_name.get((piece.run_id, Path(piece.file).name))
        if change is not None:
            _lose(coordinator, piece, change)


def _lose(coordinator: Coordinator, piece: Slice, change: ChangedFile) -> None:
    with log_about(run=piece.run_id, slice=piece.index):
        _log.warning("%s is %s: its slice is measured again", _name(piece), change.what)
    # First the file: as soon as the slice waits, another attempt may publish it again.
    moved = coordinator.records.set_aside(piece.file)
    if moved is not None:
        warn_of(moved)
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
