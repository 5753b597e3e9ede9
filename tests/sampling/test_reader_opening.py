from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from assay_sampling.errors import InputError, RefusedError, StorageError
from assay_sampling.files.reading import PlainFile
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling.reader_files import (
    nsys_call,
    nsys_export,
    nsys_kernel,
    raw_page,
    raw_row,
    trace,
    trace_kernel,
    write,
    write_gzip,
)

_NCU, _KINETO = "ncu-raw-csv", "kineto-json"


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "format_", "launches", "kernels", "device", "level", "counters"),
    [
        ("nsys/a100_nerf_1106_kernels.sqlite", "nsys-sqlite", 1106, 116, "NVIDIA A100-PCIE-40GB", "light", 0),
        (
            "kineto/v100_training_19370_kernels.json.gz",
            _KINETO,
            19370,
            49,
            "Tesla V100-SXM2-32GB",
            "light",
            0,
        ),
        (
            "kineto/v100_input_dims_9876_kernels.json.gz",
            _KINETO,
            9876,
            131,
            "Tesla V100-SXM2-16GB",
            "light",
            0,
        ),
        (
            "kineto/a100_input_dims_8568_kernels.json.gz",
            _KINETO,
            8568,
            170,
            "NVIDIA A100-PG509-200",
            "light",
            0,
        ),
        ("kineto/a100_alexnet_79_kernels.json.gz", _KINETO, 79, 16, "NVIDIA A100-PG509-200", "light", 0),
        ("ncu/synthetic_v100_5000_raw_page.csv.gz", _NCU, 5000, 41, "compute capability 7.0", "detailed", 19),
        (
            "ncu/synthetic_v100_1000_modern_layout.csv.gz",
            _NCU,
            1000,
            41,
            "compute capability 7.0",
            "detailed",
            19,
        ),
        ("ncu/edge_launch_skip.csv", _NCU, 40, 16, "compute capability 7.0", "detailed", 19),
        ("ncu/edge_no_units_row.csv", _NCU, 50, 16, "compute capability 7.0", "detailed", 19),
        ("ncu/edge_no_units_row_trailing_text.csv", _NCU, 50, 16, "compute capability 7.0", "detailed", 19),
        ("ncu/edge_trailing_text.csv", _NCU, 50, 16, "compute capability 7.0", "detailed", 19),
        ("sieve/syn5000_raw.csv", _NCU, 5000, 21, "compute capability 8.6", "detailed", 5),
    ],
)
def test_real_recordings_are_counted_exactly(
    shared_data: Path,
    name: str,
    format_: str,
    *,
    launches: int,
    kernels: int,
    device: str,
    level: str,
    counters: int,
) -> None:
    path = shared_data / name
    facts = inspect_recording(path)
    assert (facts["path"], facts["format"]) == (str(path), format_)
    assert (facts["launches"], facts["kernels"]) == (launches, kernels)
    assert (facts["devices"], facts["levels"]) == ([device], [level])
    assert len(facts["counters"]) == counters
    assert facts["null_counters"] == {} and facts["synthetic"] is False


def test_inspection_counts_nulls_and_leaves_out_what_was_never_measured(tmp_path: Path) -> None:
    instructions, cycles = "smsp__inst_executed.sum", "gpc__cycles_elapsed.avg"
    rows = [raw_row(i) | {instructions: "n/a"} for i in range(3)]
    rows[1] |= {cycles: "nan"}
    facts = inspect_recording(write(tmp_path / "x", raw_page(rows)), ReadOptions(synthetic=True))
    assert facts["counters"] == ["cycles_gpc_avg", "profiled_duration_ns", "thread_blocks"]
    assert facts["null_counters"] == {"cycles_gpc_avg": 1, "instructions": 3}
    assert facts["synthetic"] is True
    assert "instructions was not measured for 3 launches, the first is line 3" in [
        note["text"] for note in facts["notes"]
    ]


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    page = raw_page([raw_row(0)])
    text = trace([trace_kernel(1, 1)])
    nsys_export(tmp_path / "a.csv", [nsys_kernel(1, 1)], [nsys_call(0, 1)])
    write(tmp_path / "b.sqlite", page)
    write(tmp_path / "c.gz", text)
    write_gzip(tmp_path / "d.json", page)
    formats = [
        inspect_recording(tmp_path / name)["format"] for name in ("a.csv", "b.sqlite", "c.gz", "d.json")
    ]
    assert formats == ["nsys-sqlite", "ncu-raw-csv", "kineto-json", "ncu-raw-csv"]


def test_a_header_far_down_is_found(tmp_path: Path) -> None:
    chatter = "{ step 1: loss 0.3 }\n[INFO] more\n" * 20_000
    assert inspect_recording(write(tmp_path / "x", raw_page([raw_row(0)], preamble=chatter)))["launches"] == 1


def _error(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        open_recording(path)
    assert caught.value.path == str(path) and caught.value.remedy
    return caught.value


def test_files_that_are_not_there_or_not_files(tmp_path: Path) -> None:
    assert "no such file" in _error(tmp_path / "missing").cause
    assert "directory" in _error(tmp_path).cause
    assert "empty" in _error(write(tmp_path / "empty", b"")).cause
    assert "empty" in _error(write_gzip(tmp_path / "empty.gz", b"")).cause
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in _error(tmp_path / "pipe").cause


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "secret", raw_page([raw_row(0)]))
    path.chmod(0)
    assert "cannot be read" in _error(path).cause


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"NVR\0\x02\0", "the report is cut off or damaged at byte"),
        (b"\x28\xb5\x2f\xfd1234", "the compressed file is cut off before its end"),
        (b"PK\x03\x04", "zip"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "LFS pointer"),
        ('\ufeff"ID"'.encode("utf-16-le"), "UTF-16"),
        (b"hello\n", "not a profile file"),
        (b"\0\1\2" * 999, "not a profile"),
        (b'{"a": 1}', "not a profile file"),
        (b"[1, 2]", "not a profile file"),
        (b"PAR1", "Parquet"),
        (b"SQLite format 3\0" + b"\0" * 20, "cut off"),
        (b"x,y\n1,2\n", "not a profile file"),
    ],
)
def test_what_is_no_recording_is_refused_with_what_it_is(tmp_path: Path, content: bytes, cause: str) -> None:
    assert cause in _error(write(tmp_path / "file", content)).cause


def test_binary_reports_of_nsight_systems_are_named_by_their_suffix(tmp_path: Path) -> None:
    error = _error(write(tmp_path / "run.nsys-rep", b"\x01\x02QDSTRM" * 50))
    assert "nsys export -t sqlite" in error.remedy


def test_damaged_compression_is_an_input_error(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(raw_page([raw_row(i) for i in range(200)]).encode()))
    packed[-6] ^= 0xFF  # the checksum
    with pytest.raises(InputError, match="damaged"):
        read_launches(write(tmp_path / "sum.gz", bytes(packed)))
    with pytest.raises(InputError):
        read_launches(write(tmp_path / "garbage.gz", b"\x1f\x8b" + b"\xff" * 100))


def test_zstd_is_read_like_gzip_and_every_cut_is_told(tmp_path: Path) -> None:
    page = raw_page([raw_row(i) for i in range(300)]).encode()
    packed = bytes(pa.compress(page, codec="zstd", asbytes=True))
    plain = read_launches(write(tmp_path / "plain", page))
    assert read_launches(write(tmp_path / "packed.zst", packed)).table.equals(plain.table)
    for point in range(4, len(packed), 97):
        with pytest.raises(InputError):
            read_launches(write(tmp_path / "cut.zst", packed[:point]))


def test_the_memory_limit_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "x", raw_page([raw_row(i) for i in range(500)]))
    with pytest.raises(RefusedError, match="memory limit"):
        read_launches(path, memory_limit_bytes=1000)


def test_a_compressed_file_that_must_be_unpacked_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    plain = nsys_export(tmp_path / "x", [nsys_kernel(1, 1)], [nsys_call(0, 1)])
    packed = write_gzip(tmp_path / "x.gz", plain.read_bytes())
    with open_recording(packed) as recording:
        assert len(list(scratch.iterdir())) == 1
        assert sum(batch.records.num_rows for batch in recording.batches()) == 1
    assert list(scratch.iterdir()) == []
    cut = write(tmp_path / "cut.gz", packed.read_bytes()[:-20])
    with pytest.raises(InputError, match="cut off"):
        open_recording(cut)
    assert list(scratch.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_no_room_to_unpack_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    packed = write_gzip(tmp_path / "x.gz", b"SQLite format 3\0" + os.urandom(1 << 20))
    real_open = Path.open

    def full_open(self: Path, mode: str = "r", *args: object, **kwargs: object) -> object:
        target = Path("/dev/full") if self.parent.parent == scratch and "w" in mode else self
        return real_open(target, mode, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", full_open)
    with pytest.raises(StorageError, match="no room"):
        PlainFile(packed)
    assert list(scratch.iterdir()) == []


@pytest.mark.shared_data
def test_reading_a_recording_twice_gives_the_same(shared_data: Path, tmp_path: Path) -> None:
    for name in ("kineto/a100_alexnet_79_kernels.json.gz", "ncu/edge_trailing_text.csv"):
        copy = tmp_path / Path(name).name
        shutil.copyfile(shared_data / name, copy)
        with open_recording(copy) as recording:
            first = [batch.records for batch in recording.batches()]
            again = [batch.records for batch in recording.batches()]
            notes = list(recording.notes)
        assert first == again
        assert notes == list(dict.fromkeys(notes))


def test_every_batch_has_exactly_the_schema_of_the_recording(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a", raw_page([raw_row(i) for i in range(5)])),
        write(tmp_path / "b", trace([trace_kernel(i, i) for i in range(5)])),
        nsys_export(tmp_path / "c", [nsys_kernel(i, i) for i in range(5)], [nsys_call(0, 0)]),
    ]
    for path in paths:
        with open_recording(path) as recording:
            for batch in recording.batches(max_launches=2):
                assert batch.records.schema.equals(recording.schema, check_metadata=True)
                assert batch.records.num_rows <= 2
