from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_client.recordings.launch_files import write_launches
from assay_core.files.durable import temporary_of
from assay_core.files.launch_file import new_launch_file
from assay_sampling.errors import InputError, LaunchTableError, StorageError
from assay_sampling.launches import parquet
from assay_sampling.launches import table as lt
from assay_sampling.launches.checks import referenced_ids
from assay_sampling.launches.joining import join
from assay_sampling.launches.parquet import pack_names, unpack_names
from assay_sampling.operations.collapsing import operations_of
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.made_operations import Call, made_calls
from tests.support.sampling.reader_files import kernel_names, texts, write_gzip

_METADATA = lt.TableMetadata(
    level="detailed",
    condition=lt.Condition("all", "base", 50.0),
    devices=(lt.Device(0, "A100", "uuid", "8.0", 108),),
    format="ncu-raw-csv",
    tool="Nsight Compute",
    tool_version="2024.1",
)
_COUNTERS = (
    lt.CounterColumn("cycles_gpc_avg", "cycle", "gpc__cycles_elapsed.avg", "hardware"),
    lt.CounterColumn("instructions", "inst", "smsp__inst_executed.sum", "hardware"),
)
_SCHEMA = lt.launch_schema(_METADATA, _COUNTERS)


def _batches(count: int, cuts: list[int], schema: pa.Schema = _SCHEMA, seed: int = 0) -> list[lt.LaunchBatch]:
    """``count`` launches with some nulls, cut into batches; names come with the batch that needs them."""
    random = np.random.default_rng(seed)
    names = lt.Names()
    kernels = np.array([names.intern(f"void k{i}<float>()") for i in range(5)], np.uint64)
    path = names.intern("step/forward")
    columns: dict[str, Any] = {
        "process": np.zeros(count, np.int32),
        "launch": np.arange(count),
        "kernel_id": kernels[random.integers(0, 5, count)],
        "grid_x": random.integers(1, 10**6, count),
        "block_x": random.integers(1, 1024, count),
        "grid_y": pa.array(random.integers(1, 9, count), pa.int32(), mask=random.random(count) < 0.3),
        "nvtx_id": pa.array(np.full(count, path, np.uint64), mask=random.random(count) < 0.5),
        "cycles_gpc_avg": random.random(count),
        "instructions": pa.array(random.random(count), mask=random.random(count) < 0.1),
    }
    whole = lt.make_batch(schema, columns)
    edges = [0, *sorted(cut % (count + 1) for cut in cuts), count]
    seen: set[int] = set()
    batches = []
    for start, stop in pairwise(edges):
        part = whole.slice(start, stop - start)
        new = [i for i in referenced_ids(part).tolist() if i not in seen]
        seen |= set(new)
        batches.append(lt.LaunchBatch(part, {i: names[i] for i in new}))
    return batches


def _written(path: Path, batches: list[lt.LaunchBatch], schema: pa.Schema = _SCHEMA) -> Path:
    with new_launch_file(path, schema) as writer:
        for batch in batches:
            writer.write(batch)
        assert writer.launches == sum(batch.records.num_rows for batch in batches)
    return path


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(1, 200),
    cuts=st.lists(st.integers(0, 200), max_size=6),
    other_cuts=st.lists(st.integers(0, 200), max_size=6),
    group_rows=st.integers(3, 64),
    read_size=st.integers(1, 50),
)
def test_what_is_written_does_not_depend_on_batches_and_comes_back_whole(
    tmp_path_factory: pytest.TempPathFactory,
    *,
    count: int,
    cuts: list[int],
    other_cuts: list[int],
    group_rows: int,
    read_size: int,
) -> None:
    folder = tmp_path_factory.mktemp("parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "ROW_GROUP_ROWS", group_rows)
        first = _written(folder / "a", _batches(count, cuts))
        second = _written(folder / "b", _batches(count, other_cuts))
    assert first.read_bytes() == second.read_bytes()
    original = _batches(count, [])[0]
    with open_recording(first) as recording:
        assert recording.schema.equals(_SCHEMA, check_metadata=True)
        batches = list(recording.batches(read_size))
    assert all(batch.records.num_rows <= read_size for batch in batches)
    assert all(batch.records.schema.equals(_SCHEMA, check_metadata=True) for batch in batches)
    read = pa.Table.from_batches([batch.records for batch in batches]).combine_chunks()
    assert read.equals(pa.Table.from_batches([original.records]).combine_chunks(), check_metadata=True)
    names = [name for batch in batches for name in batch.new_names.items()]
    assert len(names) == len(dict(names)) and dict(names) == original.new_names


def test_row_groups_have_the_size_that_the_format_says(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", _batches(300_000, [7, 140_000]))
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(3)] == [131_072, 131_072, 37_856]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert inspect_recording(path)["launches"] == 300_000


@pytest.mark.shared_data
def test_a_recording_comes_back_as_it_was_read(shared_data: Path, tmp_path: Path) -> None:
    for name in (
        "nsys/a100_nerf_1106_kernels.sqlite",
        "kineto/a100_input_dims_8568_kernels.json.gz",
        "ncu/synthetic_v100_5000_raw_page.csv.gz",
    ):
        with open_recording(shared_data / name) as recording:
            path = _written(tmp_path / "x", list(recording.batches(999)), recording.schema)
        before, after = read_launches(shared_data / name), read_launches(path)
        assert after.table.equals(before.table, check_metadata=True)
        assert kernel_names(after) == kernel_names(before)
        assert texts(after, "nvtx_id") == texts(before, "nvtx_id")
        facts = inspect_recording(shared_data / name) | {
            "path": str(path),
            "format": "assay-parquet",
            "notes": [],
        }
        assert inspect_recording(path) == facts


def test_no_launches_at_all_is_a_file_too(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", [])
    assert len(read_launches(path)) == 0
    assert inspect_recording(path)["counters"] == []


def test_compressed_files_are_read(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", _batches(10, []))
    assert read_launches(write_gzip(tmp_path / "y", path.read_bytes())).table.equals(
        read_launches(path).table
    )


# --- options --------------------------------------------------------------------------------------


def test_an_offset_and_a_condition_are_taken_over(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", _batches(5, [2]))
    condition = lt.Condition("none", "none", 100.0)
    read = read_launches(path, ReadOptions(launch_offset=40, condition=condition, synthetic=True))
    assert read.column("launch").tolist() == [40, 41, 42, 43, 44]
    assert read.metadata.condition == condition and read.metadata.synthetic
    assert read.metadata.devices == _METADATA.devices


@pytest.mark.parametrize("rows", [1, 2, 100])
def test_an_offset_moves_calls_with_their_launches(tmp_path: Path, rows: int) -> None:
    calls: list[Call] = [("aten::mm", "[[2]]", [10, 10, 10]), ("aten::relu", "[[2]]", [5])]
    # Two threads launch in turn; the last launch belongs to no call.
    made = made_calls(calls, outside=["fill"])
    table = made.table.take(pa.array([0, 3, 1, 2, 4]))
    for name, values in (("launch", [0, 1, 2, 3, 4]), ("call", [0, 1, 0, 0, None])):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, table.schema.field(place), pa.array(values, pa.int64()))
    path = tmp_path / "x"
    with new_launch_file(path, table.schema) as writer:
        writer.write(lt.LaunchBatch(table.combine_chunks().to_batches()[0], dict(made.names.items())))
    with open_recording(path, ReadOptions(launch_offset=40)) as recording:
        batches = [batch.records for batch in recording.batches(rows)]
    read = pa.Table.from_batches(batches)
    assert read["launch"].to_pylist() == [40, 41, 42, 43, 44]
    assert read["call"].to_pylist() == [40, 41, 40, 40, None]


def test_windows_with_offsets_keep_their_calls_apart(tmp_path: Path) -> None:
    windows = []
    for place, durations in enumerate(([1, 2], [3, 4])):
        made = made_calls([("aten::mm", "[[2]]", durations), ("aten::relu", "[[2]]", [5])])
        write_launches(tmp_path / f"{place}", made)
        windows.append(read_launches(tmp_path / f"{place}", ReadOptions(launch_offset=3 * place)))
    assert operations_of(join(windows)).launches.column("duration_ns").tolist() == [3, 5, 7, 5]


def test_a_call_that_begins_before_the_file_is_numbered_by_its_first_launch_in_it(tmp_path: Path) -> None:
    made = made_calls([("aten::mm", "[[2]]", [1, 2, 3]), ("aten::relu", "[[2]]", [4])])
    write_launches(tmp_path / "x", made.slice(1))
    read = read_launches(tmp_path / "x", ReadOptions(launch_offset=0))
    assert read.column("call").tolist() == [0, 0, 2]


def test_the_synthetic_mark_cannot_be_taken_back(tmp_path: Path) -> None:
    schema = lt.launch_schema(lt.TableMetadata("light", origin="synthetic"), _COUNTERS)
    path = _written(tmp_path / "x", _batches(3, [], schema), schema)
    assert read_launches(path).metadata.synthetic
    with pytest.raises(InputError, match="marked synthetic"):
        open_recording(path, ReadOptions(synthetic=False))


# --- writing that fails ---------------------------------------------------------------------------


def test_an_error_leaves_nothing_behind_and_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", _batches(3, []))
    before = path.read_bytes()
    with pytest.raises(RuntimeError, match="stop"), new_launch_file(path, _SCHEMA) as writer:
        writer.write(_batches(5, [])[0])
        raise RuntimeError("stop")
    assert [p.name for p in tmp_path.iterdir()] == ["x"] and path.read_bytes() == before


def test_nothing_stands_under_the_name_before_the_end(tmp_path: Path) -> None:
    with new_launch_file(tmp_path / "x", _SCHEMA) as writer:
        writer.write(_batches(5, [])[0])
        assert [p.name for p in tmp_path.iterdir()] == [temporary_of(tmp_path / "x").name]
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_the_file_and_its_directory_are_synced_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def record_fsync(descriptor: int) -> None:
        steps.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")  # noqa: PTH112
        fsync(descriptor)

    def record_replace(self: Path, target: Path) -> Path:
        steps.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    _written(tmp_path / "x", _batches(3, []))
    assert steps == ["file", "rename", "directory"]


def test_a_full_disk_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        _written(tmp_path / "x", _batches(3, []))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up_while_rows_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 50_000)
    link = temporary_of(tmp_path / "x")
    link.symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"the disk refused|no space left"):
        _written(tmp_path / "x", _batches(200_000, []))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"the disk refused|no space left"):
        _written(tmp_path / "none" / "x", [])


def test_batches_of_another_schema_or_without_names_are_refused(tmp_path: Path) -> None:
    other = lt.launch_schema(lt.TableMetadata("light"), _COUNTERS)
    with pytest.raises(LaunchTableError, match="another schema"):
        _written(tmp_path / "x", _batches(3, [], other))
    nameless = lt.LaunchBatch(_batches(3, [])[0].records, {})
    with pytest.raises(LaunchTableError, match="no name was given"):
        _written(tmp_path / "x", [nameless])
    strange = pa.schema([("a", pa.int64())])
    with pytest.raises(LaunchTableError), new_launch_file(tmp_path / "x", strange):
        pass
    assert list(tmp_path.iterdir()) == []


# --- hostile files --------------------------------------------------------------------------------


def _rewritten(path: Path, **changes: Any) -> Path:
    """The file written again by pyarrow alone: ``footer`` replaces the metadata, ``columns`` values."""
    table = pq.read_table(path)
    for name, values in changes.get("columns", {}).items():
        position = table.schema.get_field_index(name)
        table = table.set_column(position, table.schema.field(name), values)
    table = changes.get("table", table)
    footer = {**(pq.read_metadata(path).metadata or {}), **changes.get("footer", {})}
    footer = {k: v for k, v in footer.items() if v is not None and k != b"ARROW:schema"}
    pq.write_table(table.replace_schema_metadata(footer), path)
    return path


def _error(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        read_launches(path)
    assert caught.value.path == str(path)
    return caught.value


def test_rewriting_alone_does_no_harm(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", _batches(4, []))
    before = read_launches(path).table
    assert read_launches(_rewritten(path)).table.equals(before)


@pytest.mark.parametrize(
    ("footer", "cause"),
    [
        ({b"assay.names": None}, "not one that Assay wrote"),
        ({b"assay": None}, "not one that Assay wrote"),
        ({b"assay": b"{}"}, "metadata"),
        ({b"assay": b"\xff"}, "metadata"),
        ({b"assay": b'{"schema_version": 99}'}, "version 99"),
        ({b"assay.names": b"!!"}, "names"),
        ({b"assay.names": b"AAAA"}, "names"),
        ({b"assay.names": pack_names(lt.Names())}, "no name was given"),
    ],
)
def test_footers_that_are_not_ours(tmp_path: Path, footer: dict[bytes, bytes | None], cause: str) -> None:
    path = _written(tmp_path / "x", _batches(4, []))
    assert cause in _error(_rewritten(path, footer=footer)).cause


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("launch", pa.array([0, -1, 2, 3])),
        ("grid_x", pa.array([1, 0, 1, 1])),
        ("duration_ns", pa.array([1, 1, -5, 1])),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, column: str, values: pa.Array) -> None:
    path = _written(tmp_path / "x", _batches(4, []))
    assert f"{column!r}" in _error(_rewritten(path, columns={column: values})).cause


def test_columns_that_are_missing_or_of_another_type(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", _batches(4, []))
    table = pq.read_table(path)
    _error(_rewritten(path, table=table.drop_columns(["process"])))
    path = _written(tmp_path / "x", _batches(4, []))
    cast = table.set_column(1, "launch", table["launch"].cast(pa.int32()))
    _error(_rewritten(path, table=cast))


def test_names_that_are_not_what_their_ids_say() -> None:
    names = lt.Names()
    names.intern("right")
    forged = names.to_table().set_column(1, lt.NAMES_SCHEMA.field(1), pa.array(["wrong"], pa.large_string()))
    forged = forged.cast(lt.NAMES_SCHEMA)
    bad = type("Forged", (), {"to_table": lambda self: forged})()
    with pytest.raises(InputError, match="not the hash"):
        unpack_names(pack_names(bad), "file")


def test_a_table_of_names_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = lt.Names()
    names.intern("a" * 1_000_000)
    packed = pack_names(names)
    assert len(packed) < 2000
    monkeypatch.setattr(parquet, "MAX_NAMES_BYTES", 100_000)
    with pytest.raises(InputError, match="unreasonably large"):
        unpack_names(packed, "file")


@given(st.lists(st.text(max_size=20), max_size=30), st.randoms())
@settings(deadline=None)
def test_names_pack_the_same_in_any_order(texts_: list[str], random: Any) -> None:
    names, shuffled = lt.Names(), lt.Names()
    for text in texts_:
        names.intern(text)
    mixed = list(texts_)
    random.shuffle(mixed)
    for text in mixed:
        shuffled.intern(text)
    assert pack_names(names) == pack_names(shuffled)
    assert dict(unpack_names(pack_names(names), "x").items()) == dict(names.items())


def test_a_flipped_bit_in_a_page_is_noticed(tmp_path: Path) -> None:
    path = _written(tmp_path / "x", _batches(2000, []))
    whole = path.read_bytes()
    metadata = pq.read_metadata(path)
    position = metadata.schema.names.index("cycles_gpc_avg")
    column = metadata.row_group(0).column(position)
    middle = column.data_page_offset + column.total_compressed_size // 2
    path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 0x10]) + whole[middle + 1 :])
    _error(path)


def test_other_parquet_files_are_named_as_such(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x")
    assert "not one that Assay wrote" in _error(tmp_path / "x").cause


def test_what_was_read_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 10_000)
    path = _written(tmp_path / "launches.parquet", _batches(200_000, list(range(0, 200_000, 10_000))))
    before = pa.total_allocated_bytes()
    with open_recording(path, ReadOptions()) as recording:
        held = [pa.total_allocated_bytes() - before for _ in recording.batches(10_000)]
    assert len(held) == 20
    # One batch and its column chunks; with a cache of what is read it is that and the whole file.
    assert max(held) < path.stat().st_size
