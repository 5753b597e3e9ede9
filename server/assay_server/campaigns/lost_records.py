"""Published files that are missing or changed: set aside, named, and their slices measured again."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from assay_sampling.failures import FailureClass, failure
from assay_server.analysis.intact import ChangedFile, what_changed
from assay_server.campaigns.coordinator import Coordinator
from assay_server.campaigns.retry import failure_record
from assay_server.store.model import ENDED_CAMPAIGNS, Slice
from assay_server.store.protocols import MetadataReader
from assay_server.store.set_aside import warn_of

_log = logging.getLogger(__name__)


def lose_records(coordinator: Coordinator, changed: Collection[ChangedFile]) -> None:
    """Take these files out of their campaigns, whose runs are then made again as far as tries are left.

    Raises StorageError.
    """
    by_path = {each.path: each for each in changed}
    with coordinator.snapshot() as store:
        run_ids = sorted({each.run_id for each in changed})
        pieces = [piece for run_id in run_ids for piece in store.slices(run_id) if piece.file]
    for piece in pieces:
        found = by_path.get(str(coordinator.records.path(piece.file)))
        if found is not None:
            _lose(coordinator, piece, found)


def _lose(coordinator: Coordinator, piece: Slice, found: ChangedFile) -> None:
    _log.warning("%s is %s: its slice is measured again", _name(piece), found.what)
    # First the file: as soon as the slice waits, somebody may publish it anew.
    moved = coordinator.records.set_aside(piece.run_id, piece.index)
    if moved is not None:
        warn_of(moved)
    cause = f"{_name(piece)} is {found.what} since it was published"
    why = failure_record(failure(FailureClass.RECORDS_CHANGED, f"run {piece.run_id}", cause))
    with coordinator.schedule() as schedule:
        schedule.lose_record(piece, why)


def look_for_lost_records(coordinator: Coordinator) -> None:
    """At the start: whether each published file is there with its size; an analysis asks for their hashes.

    Those of campaigns that have not ended are measured again; the others are named in the log.
    """
    lost: list[ChangedFile] = []
    with coordinator.snapshot() as store:
        for piece in store.published_slices():
            path = coordinator.records.path(piece.file)
            if _has_size(path, piece.file_bytes):
                continue
            found = ChangedFile(piece.run_id, str(path), "changed" if path.exists() else "missing")
            if _has_ended(store, piece):
                _log.warning("%s, of a campaign that has ended, is %s", _name(piece), found.what)
                coordinator.changed_records.note(replace(found, path=_name(piece)))
            else:
                lost.append(found)
    lose_records(coordinator, lost)


def changed_files(coordinator: Coordinator, campaign_id: str) -> list[ChangedFile]:
    """The published files of a campaign that are not what was published, by their hashes."""
    with coordinator.snapshot() as store:
        pieces = [p for run in store.runs(campaign_id) for p in store.slices(run.run_id) if p.file]
    found = []
    for piece in pieces:
        what = what_changed(coordinator.records.path(piece.file), piece.content_hash)
        if what is not None:
            _log.warning("%s, which the report of %s was made of, is %s", _name(piece), campaign_id, what)
            found.append(ChangedFile(piece.run_id, _name(piece), what))
            coordinator.changed_records.note(found[-1])
        else:
            coordinator.changed_records.forget(_name(piece))
    return found


def _name(piece: Slice) -> str:
    return f"records/{piece.file}"


def _has_size(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _has_ended(store: MetadataReader, piece: Slice) -> bool:
    run = store.run(piece.run_id)
    campaign = None if run is None else store.campaign(run.campaign_id)
    return campaign is None or campaign.state in ENDED_CAMPAIGNS
