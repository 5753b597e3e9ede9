"""Exports of Nsight Systems by generation and form: the same run must give the same launches."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from assay_sampling.errors import InputError
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.reader_files import (
    kernel_names,
    nsys_call,
    nsys_export,
    nsys_kernel,
    nsys_range,
    parquet_folder,
    raw_page,
    raw_row,
    sentences,
    texts,
    write,
)

_REAL = "nsys/a100_nerf_1106_kernels.sqlite"


def _changed(source: Path, target: Path, *statements: str) -> Path:
    shutil.copyfile(source, target)
    target.chmod(0o600)
    with closing(sqlite3.connect(target)) as database, database:
        for statement in statements:
            database.execute(statement)
    return target


def _same(left: Launches, right: Launches) -> None:
    assert left.table.equals(right.table)
    assert dict(left.names.items()) == dict(right.names.items())
    assert left.metadata.devices == right.metadata.devices


# What later versions changed, as far as it is known: 2023 renamed the meta-data and added columns, all
# strings may be registered, and the ordinals of devices have a table of their own.
_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
GENERATIONS: dict[str, tuple[str, ...]] = {
    "2023: meta-data renamed, green contexts": (
        "ALTER TABLE EXPORT_META_DATA RENAME TO META_DATA_EXPORT",
        "UPDATE META_DATA_EXPORT SET value = '3.7.2' WHERE name = 'EXPORT_SCHEMA_VERSION'",
        "CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT)",
        f"ALTER TABLE {_KERNEL} ADD COLUMN greenContextId INTEGER",
    ),
    "2024: registered texts only": (
        "INSERT INTO StringIds SELECT (SELECT max(id) FROM StringIds) + row_number() OVER (), text "
        "FROM (SELECT DISTINCT text FROM NVTX_EVENTS WHERE text IS NOT NULL)",
        "UPDATE NVTX_EVENTS SET textId = (SELECT max(id) FROM StringIds WHERE value = text) "
        "WHERE text IS NOT NULL",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN text",
        "ALTER TABLE NVTX_EVENTS DROP COLUMN jsonText",
    ),
    "2025: clusters, priorities, and tables that nobody knows": (
        f"ALTER TABLE {_KERNEL} ADD COLUMN clusterX INTEGER",
        f"ALTER TABLE {_KERNEL} ADD COLUMN priority INTEGER DEFAULT -1",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_NEW (start INTEGER, what BLOB)",
    ),
    "2026: ordinals of devices in a table, and columns gone that nobody needs": (
        "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)",
        "INSERT INTO TARGET_INFO_CUDA_DEVICE SELECT id, cuDevice, 1 FROM TARGET_INFO_GPU WHERE smCount > 0",
        "ALTER TABLE TARGET_INFO_GPU DROP COLUMN cuDevice",
        f"ALTER TABLE {_KERNEL} DROP COLUMN sharedMemoryExecuted",
        f"ALTER TABLE {_KERNEL} DROP COLUMN sharedMemoryLimitConfig",
        f"ALTER TABLE {_KERNEL} DROP COLUMN mangledName",
    ),
}


@pytest.mark.shared_data
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("form", ["sqlite", "parquet"])
def test_every_generation_gives_the_same_launches(
    shared_data: Path, tmp_path: Path, generation: str, form: str
) -> None:
    path = _changed(shared_data / _REAL, tmp_path / "x.sqlite", *GENERATIONS[generation])
    if form == "parquet":
        path = parquet_folder(path, tmp_path / "tables")
    launches = read_launches(path)
    _same(launches, read_launches(shared_data / _REAL))
    assert launches.metadata.format == f"nsys-{form}"
    assert launches.metadata.tool_version.startswith("2021.5")


@pytest.mark.shared_data
def test_a_parquet_export_of_the_real_run(shared_data: Path, tmp_path: Path) -> None:
    folder = parquet_folder(shared_data / _REAL, tmp_path / "tables")
    _same(read_launches(folder), read_launches(shared_data / _REAL))
    facts = inspect_recording(folder)
    assert (facts["format"], facts["launches"], facts["kernels"]) == ("nsys-parquet", 1106, 116)
    assert facts["devices"] == ["NVIDIA A100-PCIE-40GB"]
    with open_recording(folder) as recording:
        for size in (1000, 7):
            assert sum(batch.records.num_rows for batch in recording.batches(size)) == 1106


def _small(tmp_path: Path) -> Path:
    source = nsys_export(
        tmp_path / "x.sqlite",
        [nsys_kernel(100, 1), nsys_kernel(300, 2, demangledName=2)],
        [nsys_call(50, 1), nsys_call(250, 2)],
        [nsys_range(0, 200, "outer")],
    )
    return parquet_folder(source, tmp_path / "tables")


def test_a_small_parquet_export(tmp_path: Path) -> None:
    launches = read_launches(_small(tmp_path))
    assert kernel_names(launches) == ["void first<int>(int*)", "void second(float)"]
    assert texts(launches, "nvtx_id") == ["outer", None]
    assert launches.column("start_ns").tolist() == [100, 300]


def test_a_parquet_export_tells_of_lost_kernels_too(tmp_path: Path) -> None:
    names = {1: "k", 5: "cudaLaunchKernel_v7000"}
    calls = [nsys_call(i, i, nameId=5, returnValue=0) for i in (1, 2, 3)] + [
        nsys_call(9, 9, nameId=5, returnValue=98)
    ]
    source = nsys_export(tmp_path / "x.sqlite", [nsys_kernel(1, 1)], calls, strings=names)
    folder = parquet_folder(source, tmp_path / "parquet")
    said = "the profiler lost kernels: 2 launch calls have no kernel in the file"
    assert sentences(read_launches(folder)) == sentences(read_launches(source)) == (said,)


@pytest.mark.parametrize("table", [_KERNEL, "StringIds", "NVTX_EVENTS"])
def test_a_damaged_table_is_named(tmp_path: Path, table: str) -> None:
    path = _small(tmp_path) / f"{table}.parquet"
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"PAR1" + bytes(100)):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="cut off or damaged") as caught:
            read_launches(path.parent)
        assert caught.value.path == str(path)


def test_folders_that_are_no_exports(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is a directory"):
        read_launches(tmp_path)
    folder = _small(tmp_path)
    (folder / f"{_KERNEL}.parquet").unlink()
    with pytest.raises(InputError, match="no kernels were captured"):
        read_launches(folder)


def test_the_copy_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _small(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert len(read_launches(folder)) == 2
    (folder / "StringIds.parquet").write_bytes(b"")
    with pytest.raises(InputError):
        read_launches(folder)
    assert list(temporary.iterdir()) == []


# --- the synthetic mark ---------------------------------------------------------------------------


def _marked_export(tmp_path: Path, table: str) -> Path:
    facts = [{"name": SYNTHETIC_MARK, "value": "true"}]
    return nsys_export(tmp_path / f"{table}.sqlite", [nsys_kernel(100, 1)], extra={table: facts})


def _marked_preamble(tmp_path: Path) -> Path:
    page = raw_page([raw_row(0)], preamble=f"==WARNING== {SYNTHETIC_MARK}: no silicon was measured\n")
    return write(tmp_path / "preamble.csv", page)


MARKED: dict[str, Callable[[Path], Path]] = {
    "META_DATA_EXPORT": lambda tmp_path: _marked_export(tmp_path, "META_DATA_EXPORT"),
    "EXPORT_META_DATA": lambda tmp_path: _marked_export(tmp_path, "EXPORT_META_DATA"),
    "parquet": lambda tmp_path: parquet_folder(
        _marked_export(tmp_path, "META_DATA_EXPORT"), tmp_path / "tables"
    ),
    "preamble": _marked_preamble,
    "host": lambda tmp_path: write(
        tmp_path / "host.csv", raw_page([raw_row(i, Host_Name=SYNTHETIC_MARK) for i in range(2)])
    ),
}


@pytest.mark.parametrize("kind", MARKED)
def test_a_file_that_says_it_is_synthetic_is_believed(tmp_path: Path, kind: str) -> None:
    path = MARKED[kind](tmp_path)
    assert read_launches(path).metadata.synthetic
    assert read_launches(path, ReadOptions(synthetic=True)).metadata.synthetic
    with pytest.raises(InputError, match="marked synthetic, and that mark cannot be removed"):
        read_launches(path, ReadOptions(synthetic=False))


def test_text_of_the_application_is_no_mark(tmp_path: Path) -> None:
    page = raw_page([raw_row(0)], preamble=f"{SYNTHETIC_MARK} is not ours to say\n")
    assert not read_launches(write(tmp_path / "x", page)).metadata.synthetic


def test_a_page_whose_launches_differ_in_the_mark_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay_sampling.readers.ncu.raw_page._FIRST_BLOCK_BYTES", 600)
    rows = [raw_row(i, Host_Name=SYNTHETIC_MARK if i > 20 else "127.0.0.1") for i in range(30)]
    with pytest.raises(InputError, match="the first ones are not") as caught:
        read_launches(write(tmp_path / "x", raw_page(rows)))
    assert (caught.value.line, caught.value.field) == (24, "Host Name")
