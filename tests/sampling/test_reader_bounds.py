"""Sizes that a file announces are bounded before anything is made of them; bad input is a typed error."""

from __future__ import annotations

import gzip
import json
import lzma
import resource
import sqlite3
import sys
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assay_client.recordings.analyses import load_selection
from assay_sampling.documents.selection import LabelsEntry
from assay_sampling.errors import AssayError, InputError
from assay_sampling.files import reading as files
from assay_sampling.launches.parquet import unpack_names
from assay_sampling.projection.series_csv import read_series
from assay_sampling.readers.block_files import read_basic_block_vectors
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.ncu.container import read_container
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.saved.labels import first_difference, labels_from
from assay_sampling.simulators.accel_sim.kernels_list import read_kernels_list
from assay_sampling.simulators.accel_sim.output import read_output
from assay_sampling.simulators.accel_sim.trace import block_counts, read_blocks
from assay_sampling.simulators.accel_sim.visualizer import IntervalLog
from tests.support.sampling import ncu_reports
from tests.support.sampling.accel_sim_logs import Launch, output
from tests.support.sampling.accel_sim_traces import TRACE
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.reader_files import (
    kernel_names,
    nsys_call,
    nsys_export,
    nsys_kernel,
    raw_page,
    raw_row,
    trace,
    trace_call,
    trace_kernel,
    trace_range,
    write,
)

_MEMORY_BYTES = 512 << 20
_VECTORS = ("launch", "block", "count", "warps")


@contextmanager
def little_memory() -> Iterator[None]:
    """The process may take half a gigabyte more than it has."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def refusal(read: Callable[[], Any]) -> AssayError:
    with little_memory(), pytest.raises(AssayError) as caught:
        read()
    return caught.value


LOG = output([Launch(), Launch(traced_id=2)])


@pytest.mark.parametrize("channel", ["100000000", "9" * 23, "9" * 5000], ids=len)
def test_a_channel_of_a_simulators_log(tmp_path: Path, channel: str) -> None:
    assert "dram[2]: " in LOG
    path = write(tmp_path / "x.log", LOG.replace("dram[2]: ", f"dram[{channel}]: "))
    error = refusal(lambda: read_output(path))
    assert isinstance(error, InputError) and error.line and error.field == "memory channels"


@pytest.mark.parametrize("number", ["9" * 23, "9" * 5000], ids=len)
@pytest.mark.parametrize(
    "line",
    ["gpu_sim_cycle = ", "gpu_tot_issued_cta = ", "-kernel id = ", "kernel_launch_uid = ", "dram[2]: "],
)
def test_a_number_of_a_simulators_log(tmp_path: Path, line: str, number: str) -> None:
    assert line in LOG
    start = LOG.index(line)
    end = LOG.index("\n", start)
    path = write(tmp_path / "x.log", LOG[:start] + line + number + LOG[end:])
    error = refusal(lambda: read_output(path))
    assert isinstance(error, InputError) and error.line is not None


@pytest.mark.parametrize("number", ["9" * 23, "9" * 5000], ids=len)
def test_options_and_uids_of_a_simulators_log(tmp_path: Path, number: str) -> None:
    """What the log echoes is not needed for every launch: an option that is no number is not known."""
    text = LOG.replace("-gpgpu_n_clusters", "-gpgpu_n_clusters                 " + number + " #", 1)
    log, launches = read_output(write(tmp_path / "x.log", text))
    assert (len(launches), log.config.sms) == (2, None)
    assert refusal(lambda: read_output(write(tmp_path / "y.log", LOG.replace("uid: 1", f"uid: {number}"))))


def test_a_kernel_name_that_is_no_text(tmp_path: Path) -> None:
    pushed = b"GPGPU-Sim PTX: pushing kernel '\xff\xfe' to stream 0, gridDim= (1,1,1) blockDim = (32,1,1)\n"
    statistics = LOG[LOG.index("kernel_name = ") :].encode()
    assert read_output(write(tmp_path / "x.log", b"GPGPU-Sim\n" + pushed + statistics))


@pytest.mark.parametrize("number", ["9" * 23, "9" * 400, "9" * 5000], ids=len)
def test_a_number_of_an_interval_log(tmp_path: Path, number: str) -> None:
    sample = "globalcyclecount: 100\nctas_completed: 1\nglobalinsncount: 5\ndramutil: 0 7\n"
    for old in ("100", "1\n", "5", "7"):
        path = write(tmp_path / "x.log", sample.replace(old, number + ("\n" if old[-1] == "\n" else ""), 1))
        assert refusal(lambda path=path: list(IntervalLog(path).series()))  # type: ignore[misc]


# --- traces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0000 ffffffff", "0000 fffffffff"),
        ("0000 ffffffff", "0000 " + "f" * 5000),
        ("R2 4 1", "R2 99999999999 1"),
        ("warp = 0", "warp = 99999999999"),
        ("warp = 0", "warp = " + "9" * 5000),
        ("insts = 2", "insts = " + "9" * 5000),
        ("thread block = 0,0,0", "thread block = " + "9" * 5000 + ",0,0"),
        ("grid dim = (1,1,1)", "grid dim = (1000000,1000000,1)"),
        ("grid dim = (1,1,1)", "grid dim = (" + "9" * 5000 + ",1,1)"),
        ("0x7f0000000000 4", "0x7f0000000000 " + "9" * 30),
        ("1 0x7f0000000000 4", "0 " + " ".join(["0x" + "f" * 30] * 32)),
        ("1 0x7f0000000000 4", "2 0x7f0000000000 " + " ".join(["9" * 30] * 31)),
        ("1 0x7f0000000000 4", "0 " + " ".join(["0x" + "\u00e9" * 16] * 32)),
    ],
    ids=lambda text: text[:24],
)
def test_numbers_of_a_trace(tmp_path: Path, old: str, new: str) -> None:
    assert len(list(read_blocks(write(tmp_path / "whole.traceg", TRACE)))) == 1
    assert old in TRACE
    path = write(tmp_path / "x.traceg", TRACE.replace(old, new))
    assert isinstance(refusal(lambda: list(read_blocks(path))), InputError)
    assert isinstance(refusal(lambda: block_counts(path, line_bytes=128)), InputError)


def test_a_dictionary_of_xz_that_is_announced(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    # Written by hand: compressing so would take the memory that reading must not.
    small = lzma.compress(TRACE.encode(), filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 16}])
    at = small.index(b"\x21\x01") + 2
    assert filters[0]["id"] == 0x21
    announced = bytearray(small)
    announced[at] = 37  # 3 GiB / 2
    announced[20:24] = zlib.crc32(bytes(announced[12:20])).to_bytes(4, "little")
    path = write(tmp_path / "x.traceg.xz", bytes(announced))
    error = refusal(lambda: list(read_blocks(path)))
    assert "Memory usage limit" in error.cause


@pytest.mark.parametrize("copy", ["0x10," + "9" * 5000, "0x" + "f" * 5000 + ",1"], ids=["bytes", "address"])
def test_numbers_of_a_list_of_kernels(tmp_path: Path, copy: str) -> None:
    """Found by ``make fuzz``."""
    path = write(tmp_path / "kernelslist.g", f"MemcpyHtoD,{copy}\nkernel-1.traceg\n")
    assert isinstance(refusal(lambda: read_kernels_list(path)), InputError)


# --- Kineto ---------------------------------------------------------------------------------------


def test_names_with_half_a_character(tmp_path: Path) -> None:
    """A tool that cuts names by UTF-16 units leaves half a pair; two such names stay two."""
    events = [
        trace_kernel(10, 1, name="k\ud800"), trace_kernel(20, 2, name="k\ud801"), trace_call(5, 1),
        trace_range("cpu_op", "op\udfff", 1, 50, {"External id": 1, "Input Dims": [["\ud800"]]}),
        trace_range("user_annotation", "step\ud800", 0, 100),
    ]  # fmt: skip
    properties = [{"id": 0, "name": "GPU\ud800", "computeMajor": 8, "computeMinor": 0}]
    path = write(tmp_path / "x.json", trace(events, deviceProperties=properties))
    launches = read_launches(path)
    assert kernel_names(launches) == ["k\\ud800", "k\\ud801"]
    assert json.dumps(inspect_recording(path), ensure_ascii=False).encode()


def test_shapes_that_are_nested_too_deep(tmp_path: Path) -> None:
    dims: Any = []
    for _ in range(900):
        dims = [dims]
    event = trace_range("cpu_op", "op", 1, 50, {"External id": 1, "Input Dims": dims})
    text = trace([trace_kernel(10, 1), event])
    path = write(tmp_path / "x.json", text)
    frames = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(700)
        with pytest.raises(InputError):
            read_launches(path)
    finally:
        sys.setrecursionlimit(frames)


# --- CSV pages, SQLite, Parquet -------------------------------------------------------------------


@pytest.mark.parametrize("column", ["Device", "Process_ID", "Stream", "ID"])
def test_numbers_of_a_raw_page(tmp_path: Path, column: str) -> None:
    rows = [raw_row(0, **{column: "9" * 5000})]
    read = write(tmp_path / "x.csv", raw_page(rows))
    if column == "Process_ID":
        assert len(read_launches(read)) == 1  # a name of a process, whatever it is
    else:
        assert isinstance(refusal(lambda: read_launches(read)), InputError)


def test_a_text_that_sqlite_would_compute(tmp_path: Path) -> None:
    """A generated column announces any size in a few bytes."""
    path = nsys_export(tmp_path / "x.sqlite", [nsys_kernel(1, 1)], [nsys_call(0, 1)])
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE StringIds")
        database.execute("CREATE TABLE StringIds (id, value AS (hex(zeroblob(400000000))))")
        database.execute("INSERT INTO StringIds (id) VALUES (1)")
    assert isinstance(refusal(lambda: read_launches(path)), InputError)


def test_a_compressed_file_that_unpacks_to_far_more(tmp_path: Path) -> None:
    head = gzip.compress(b"SQLite format 3\0" + bytes(84))
    # A file of several streams unpacks to all of them, one after the other.
    zeros = gzip.compress(bytes(100 << 20))
    bomb = tmp_path / "x.sqlite.gz"
    bomb.write_bytes(head + 12 * zeros)
    error = refusal(lambda: read_launches(bomb))
    assert "unpacks to" in error.cause


def test_a_table_of_names_that_unpacks_to_far_more() -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        for _ in range(1000):
            packed.write(bytes(1 << 20))
    bomb = b64encode(sink.getvalue())
    assert len(bomb) < 1 << 20
    error = refusal(lambda: unpack_names(bomb, "x.parquet"))
    assert "unreasonably large" in error.cause


def test_names_of_columns_that_are_no_text(tmp_path: Path) -> None:
    """Found by ``make fuzz``."""
    path = write(tmp_path / "x.csv", b"launch,block,count,warps,\xb1\xff\n0,0,1,8,1\n")
    error = refusal(lambda: read_basic_block_vectors(path, made_launches(["a"])))
    assert isinstance(error, InputError) and "neither CSV nor Parquet" in error.cause


def test_a_parquet_table_of_far_more_rows_than_its_bytes_hold(tmp_path: Path) -> None:
    """A column of one value takes a few bytes for any number of rows."""
    rows = 8_000_000
    path = tmp_path / "x.parquet"
    with pq.ParquetWriter(path, pa.schema([(name, pa.int64()) for name in _VECTORS])) as writer:
        part = pa.table({name: pa.array(np.zeros(1_000_000, np.int64)) for name in _VECTORS})
        for _ in range(rows // len(part)):
            writer.write_table(part)
    assert path.stat().st_size < 1 << 20
    error = refusal(lambda: read_basic_block_vectors(path, made_launches(["a"])))
    assert f"{rows:,} rows" in error.cause and "CSV" in error.remedy


def test_a_compressed_table_of_blocks_that_unpacks_to_far_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_UNPACKED_BYTES", 1 << 20)
    rows = b"0,0,1,8\n" * (1 << 20)
    path = write(tmp_path / "x.csv.gz", gzip.compress(b"launch,block,count,warps\n" + rows))
    error = refusal(lambda: read_basic_block_vectors(path, made_launches(["a"])))
    assert "unpacks to" in error.cause


def test_a_report_that_goes_on_with_zeros(tmp_path: Path) -> None:
    """Found by ``make fuzz``: ten megabytes of empty blocks took a minute."""
    content = b"".join(ncu_reports.report(["a"])) + bytes(10 << 20)
    path = write(tmp_path / "x.ncu-rep", content)
    assert "has an empty header" in refusal(lambda: read_container(path, path)).cause


# --- selections and labels ------------------------------------------------------------------------


def _selection() -> dict[str, Any]:
    entry = {
        "process": 0, "launch": 0, "sim_id": 1, "kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1],
        "weight": 1.0,
    }  # fmt: skip
    sequence = {"exact": "00", "name_block": "00"}
    profile = {
        "launches": 1, "kernels": 1, "devices": [], "sources": [], "synthetic": False, "sequence": sequence,
    }  # fmt: skip
    return {
        "method": "pks", "parameters": {}, "seed": 0, "profile": profile,
        "groups": [{"id": 0, "launches": 1, "representatives": [entry]}],
    }  # fmt: skip


_LABELS = {"version": 1, "launches": 1, "type": "uint8", "encoding": "zlib+base64", "data": ""}


def test_the_selection_that_is_spoiled_below_is_whole(tmp_path: Path) -> None:
    saved = load_selection(write(tmp_path / "s.json", json.dumps(_selection() | {"labels": _LABELS})))
    assert saved.document.labels is not None


@pytest.mark.parametrize(
    "change",
    [
        {"grid": [10**30, 1, 1]}, {"block": [10**20, 1, 1]}, {"weight": "1e999"}, {"launch": 10**400},
        {"grid": [1e400, 1, 1]}, {"grid": [[1], 1, 1]}, {"weight": 10**400}, {"grid": [1, 1]},
    ],
)  # fmt: skip
def test_numbers_of_a_selection(tmp_path: Path, change: dict[str, Any]) -> None:
    document = _selection()
    document["groups"][0]["representatives"][0] |= change
    path = write(tmp_path / "s.json", json.dumps(document))
    assert isinstance(refusal(lambda: load_selection(path)), InputError)


def test_a_selection_that_is_nested_too_deep(tmp_path: Path) -> None:
    path = write(tmp_path / "s.json", "[" * 200_000)
    assert isinstance(refusal(lambda: load_selection(path)), InputError)


def test_labels_that_unpack_to_far_more_than_a_workload_has() -> None:
    launches = 800_000_000
    packed = zlib.compressobj(9)
    data = b"".join([*(packed.compress(bytes(1 << 20)) for _ in range(launches >> 20)), packed.flush()])
    document = {
        "version": 1, "launches": launches, "type": "uint8", "encoding": "zlib+base64",
        "data": b64encode(data).decode(),
    }  # fmt: skip
    error = refusal(lambda: labels_from(LabelsEntry.model_validate(document), np.array([launches])))
    assert "more than 50,000,000" in error.cause


@pytest.mark.parametrize("launches", [[10**30], [-5], [2**62, 2**62], [float("inf")]])
def test_counts_of_groups_that_cannot_be(tmp_path: Path, launches: list[Any]) -> None:
    document = _selection() | {"labels": _LABELS}
    document["groups"] = [document["groups"][0] | {"id": i, "launches": n} for i, n in enumerate(launches)]
    with little_memory(), suppress(InputError):
        assert load_selection(write(tmp_path / "s.json", json.dumps(document))).labels() is None


@pytest.mark.parametrize("size", [10**30, float("inf"), "many", None, 10**15])
def test_checkpoints_of_a_size_that_cannot_be(tmp_path: Path, size: Any) -> None:
    checkpoints = {"launches_per_block": size, "exact": "AAAA", "name_block": "AAAA"}
    document = _selection() | {"labels": _LABELS | {"checkpoints": checkpoints}}
    with little_memory(), suppress(InputError):
        saved = load_selection(write(tmp_path / "s.json", json.dumps(document)))
        assert first_difference(saved.document.labels, made_launches(["a", "b"]), "exact") is None


# --- series ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "cycles,instructions,ctas\n1," + "1" * 200_000 + ",1\n",
        "cycles,instructions,ctas\n1,\0,1\n",
        "cycles,instructions,ctas\n1,1,1\n1e308,2,2\n2,3,3\n-1e308,4,4\n",
        "cycles,instructions,ctas\n1,1,1\n2,1e300,2\n3,1e308,3\n",
    ],
    ids=["long", "NUL", "cycles", "instructions"],
)
def test_a_cell_of_a_series(tmp_path: Path, text: str) -> None:
    assert isinstance(refusal(lambda: read_series(write(tmp_path / "x.csv", text))), InputError)


def test_the_limit_of_these_tests_is_one(tmp_path: Path) -> None:
    assert threading.active_count() >= 1 and pa.cpu_count() >= 1
    with little_memory(), pytest.raises(MemoryError):
        np.ones(_MEMORY_BYTES // 4, np.int64)
