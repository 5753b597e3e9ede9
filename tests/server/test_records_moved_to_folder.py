"""Records of a stopped server move to a folder that servers share, and back into its state folder."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from assay_sampling.errors import ParameterError, StorageError
from assay_server.content_hash import fresh_hash_of
from assay_server.database.opening import AskedDatabase
from assay_server.database.state_notes import noted_records, write_note
from assay_server.places import records_place
from assay_server.records.moving import MovedRecords, move_to_folder, move_to_place
from assay_server.records.opening import checked_place, note_of
from assay_server.store.model import Slice, SliceState
from assay_server.store.sqlite import SqliteStore
from tests.support.server.stored_values import campaign, run

DATA = os.urandom(3_000)


def nothing(_what: str, _count: int) -> None:
    pass


def state_with_a_published_file(state: Path) -> str:
    """A state folder with one published slice; returns its file."""
    run_id = run(0).run_id
    (state / "records" / run_id).mkdir(parents=True)
    first = state / "records" / run_id / "made"
    first.write_bytes(DATA)
    content = fresh_hash_of(first)
    file = f"{run_id}/slice-00000-1-{content[:16]}.parquet"
    first.rename(state / "records" / file)
    piece = Slice(
        run_id, 0, state=SliceState.DONE, file=file, content_hash=content, file_bytes=len(DATA), launches=1
    )
    with closing(SqliteStore(state / "metadata.sqlite")) as store, store.transaction() as write:
        write.begin_epoch(1)
        write.add_campaign(campaign(), [run(0)], [piece])
    return file


def moved_to(state: Path, folder: Path) -> MovedRecords:
    return move_to_place(state, records_place(str(folder)), AskedDatabase(), nothing)


def test_records_move_to_a_shared_folder_and_back_each_as_it_was(tmp_path: Path) -> None:
    state, shared = tmp_path / "state", tmp_path / "shared"
    file = state_with_a_published_file(state)
    assert moved_to(state, shared).files == 1
    assert (shared / "records" / file).read_bytes() == DATA
    assert not (state / "records").exists()
    noted = noted_records(state)
    assert noted is not None and noted.url == str(shared) and not noted.in_bucket
    with pytest.raises(ParameterError, match="elsewhere already"):
        moved_to(state, tmp_path / "other")
    assert move_to_folder(state, AskedDatabase(), nothing).files == 1
    assert noted_records(state) is None
    assert (state / "records" / file).read_bytes() == DATA
    assert moved_to(state, shared).files == 1, "once more, to the folder that has them"


def test_records_do_not_move_into_the_folder_of_another_state_nor_where_they_are(tmp_path: Path) -> None:
    state, other, shared = tmp_path / "state", tmp_path / "other", tmp_path / "shared"
    for each in (state, other):
        state_with_a_published_file(each)
    moved_to(other, shared)
    with pytest.raises(StorageError, match="another state folder"):
        moved_to(state, shared)
    for inside in (state, state / "records", state / "other"):
        with pytest.raises(ParameterError, match="within the state folder"):
            moved_to(state, inside)
    with pytest.raises(ParameterError, match="in the state folder already"):
        move_to_folder(state, AskedDatabase(), nothing)
    assert (state / "records").exists() and noted_records(state) is None


def test_records_that_an_earlier_release_took_into_the_state_folder_stay_in_force(tmp_path: Path) -> None:
    inside = str(tmp_path / "records")
    asked = records_place(inside)
    with pytest.raises(ParameterError, match="within the state folder"):
        checked_place(tmp_path, asked)
    write_note(tmp_path, note_of(asked, 1))
    assert checked_place(tmp_path, asked) == asked
    assert checked_place(tmp_path, records_place("")) == records_place("")


def test_a_file_that_was_altered_is_not_moved(tmp_path: Path) -> None:
    state, shared = tmp_path / "state", tmp_path / "shared"
    file = state_with_a_published_file(state)
    (state / "records" / file).write_bytes(hashlib.sha256(DATA).digest() + DATA[32:])
    with pytest.raises(StorageError, match="not as it was published"):
        moved_to(state, shared)
    assert noted_records(state) is None


@pytest.mark.parametrize("name", ["slice-00000.parquet", ""])
def test_a_file_that_is_missing_is_named_with_what_to_do(tmp_path: Path, name: str) -> None:
    state, shared = tmp_path / "state", tmp_path / "shared"
    file = state_with_a_published_file(state)
    if name:  # as runs are published that are not named by their content yet
        earlier = f"{run(0).run_id}/{name}"
        with closing(sqlite3.connect(state / "metadata.sqlite")) as connection, connection:
            connection.execute("UPDATE slices SET file = ?", (earlier,))
    (state / "records" / file).unlink()
    with pytest.raises(StorageError, match="it is missing") as caught:
        moved_to(state, shared)
    assert caught.value.subject == f"records/{earlier if name else file}"
    assert "nothing was moved" in caught.value.remedy and "backup" in caught.value.remedy
    assert noted_records(state) is None
