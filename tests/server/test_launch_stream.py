"""Published launches as a stream: every cursor goes on exactly where it was, and parts stay small."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from assay_core.records.archive import LaunchesCursor, LaunchesPart
from assay_sampling.errors import ParameterError, RefusedError, StorageError
from assay_sampling.launches.parquet import ROW_GROUP_ROWS, LaunchWriter, unpack_names
from assay_sampling.launches.table import LaunchBatch
from assay_server.rpc.handlers import published as streamed
from assay_server.store.model import Slice
from tests.support.sampling.made_launches import made_launches

SIZES = (40, 0, 25, 1)


def write(path: Path, first: int, launches: int) -> None:
    made = made_launches([f"kernel {row % 3}" for row in range(launches)], launch=first + np.arange(launches),
                         duration_ns=7 * np.arange(launches))  # fmt: skip
    with path.open("wb") as file, LaunchWriter(file, made.table.schema) as writer:
        for batch in made.table.to_batches():
            writer.write(LaunchBatch(batch, dict(made.names.items())))


@pytest.fixture
def slices(tmp_path: Path) -> list[Slice]:
    found = []
    for index, launches in enumerate(SIZES):
        write(tmp_path / f"{index}.parquet", 100 * index, launches)
        found.append(
            Slice("c-1.0000", index, file=f"{index}.parquet", launches=launches, content_hash=f"h{index}")
        )
    return [*found, Slice("c-1.0000", len(SIZES))]  # the last one is not published


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "_LEAST_LAUNCHES", 7)
    monkeypatch.setattr(streamed, "_PART_BYTES", 1)


def parts(
    folder: Path, slices: Sequence[Slice], cursor: LaunchesCursor | None = None, columns: Sequence[str] = ()
) -> list[LaunchesPart]:
    wanted = streamed.after(streamed.published_files(slices), cursor or LaunchesCursor())
    return list(streamed.launch_parts(lambda file: nullcontext(folder / file), wanted, columns))


def batch_of(part: LaunchesPart) -> pa.RecordBatch:
    with pa.ipc.open_stream(part.batch) as stream:
        batch = stream.read_next_batch()
        assert stream.schema.metadata is not None
        return batch


def launch_numbers(found: Sequence[LaunchesPart]) -> list[int]:
    return [row for part in found if part.next for row in batch_of(part).column("launch").to_pylist()]


@pytest.mark.usefixtures("small_parts")
def test_every_cursor_goes_on_where_it_was(tmp_path: Path, slices: list[Slice]) -> None:
    expected = [100 * index + row for index, size in enumerate(SIZES) for row in range(size)]
    whole = parts(tmp_path, slices)
    assert launch_numbers(whole) == expected
    assert max(batch_of(part).num_rows for part in whole if part.next) == 7
    sent = 0
    for part in whole:
        if part.next is not None:
            sent += batch_of(part).num_rows
            assert launch_numbers(parts(tmp_path, slices, part.next)) == expected[sent:]
    assert sent == len(expected)


def test_names_come_before_the_launches_that_use_them(tmp_path: Path, slices: list[Slice]) -> None:
    first, second = parts(tmp_path, slices[:1])
    names = unpack_names(first.names, "names")
    used = batch_of(second).column("kernel_id").to_pylist()
    assert [names[each] for each in used[:4]] == ["kernel 0", "kernel 1", "kernel 2", "kernel 0"]
    only = parts(tmp_path, slices, columns=("duration_ns", "launch"))
    assert [part.names for part in only] == [b""] * 3
    assert batch_of(only[0]).schema.names == ["duration_ns", "launch"]


@pytest.mark.usefixtures("small_parts")
def test_a_stream_goes_on_while_later_slices_are_published(tmp_path: Path, slices: list[Slice]) -> None:
    begun = parts(tmp_path, slices[:1])
    assert launch_numbers(parts(tmp_path, slices, begun[-1].next)) == [*range(200, 225), 300]


def test_other_launches_than_before_are_refused(tmp_path: Path, slices: list[Slice]) -> None:
    place = parts(tmp_path, slices)[-1].next
    assert place is not None
    again = [replace(slices[0], content_hash="measured again"), *slices[1:]]
    for given in (again, slices[:2]):
        with pytest.raises(RefusedError, match="other launches have been published"):
            parts(tmp_path, given, place)
    for cursor, cause in (
        (replace(place, launch=5), "has 1 launches"),
        (replace(place, launch=-1), "has 1 launches"),
        (LaunchesCursor(0, 3), "no content hash"),
    ):
        with pytest.raises(ParameterError, match=cause):
            parts(tmp_path, slices, cursor)


def test_an_unknown_column_and_a_damaged_file_are_named(tmp_path: Path, slices: list[Slice]) -> None:
    with pytest.raises(ParameterError, match=r"no column 'nothing'.*kernel_id"):
        parts(tmp_path, slices, columns=("launch", "nothing"))
    path = tmp_path / "2.parquet"
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 4, len(data) // 4 + 64):  # more than a header between pages
        data[place] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(StorageError, match=r"2\.parquet.*damaged"):
        parts(tmp_path, slices)
    path.unlink()
    with pytest.raises(StorageError, match=r"2\.parquet.*No such file"):
        parts(tmp_path, slices)


def test_a_long_file_comes_in_small_parts_across_its_row_groups(tmp_path: Path) -> None:
    launches = ROW_GROUP_ROWS + 1_000
    write(tmp_path / "0.parquet", 0, launches)
    one = [Slice("c-1.0000", 0, file="0.parquet", launches=launches, content_hash="h")]
    found = [part for part in parts(tmp_path, one) if part.next]
    assert max(batch_of(part).nbytes for part in found) <= 1.1 * streamed._PART_BYTES
    assert launch_numbers(found) == list(range(launches))
    place = replace(found[0].next or LaunchesCursor(), launch=ROW_GROUP_ROWS + 10)
    assert launch_numbers(parts(tmp_path, one, place)) == list(range(ROW_GROUP_ROWS + 10, launches))
