"""Every file cut at every point: what comes out is a true beginning of the launches, or an InputError."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from assay_core.files.launch_file import new_launch_file
from assay_sampling.errors import InputError
from assay_sampling.readers.opening import open_recording, read_launches
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.reader_files import (
    RAW_FIELDS,
    RAW_UNITS,
    nsys_call,
    nsys_export,
    nsys_kernel,
    nsys_range,
    raw_page,
    raw_row,
    trace,
    trace_call,
    trace_kernel,
    trace_range,
    write,
    write_gzip,
)


def _rows(path: Path) -> list[dict[str, object]]:
    launches = read_launches(path)
    return list(launches.table.to_pylist())


def _outcomes(path: Path, content: bytes, points: Iterable[int]) -> tuple[int, int]:
    """How many of the cuts were read to the last launch, and how many to an earlier one."""
    whole = _rows(write(path, content))
    complete = partial = 0
    for point in points:
        try:
            rows = _rows(write(path, content[:point]))
        except InputError as error:
            assert str(path) in str(error)
            continue
        assert rows == whole[: len(rows)] and rows
        complete += len(rows) == len(whole)
        partial += len(rows) < len(whole)
    return complete, partial


@pytest.mark.parametrize("units", [RAW_UNITS, None])
def test_a_raw_page(tmp_path: Path, units: tuple[str, ...] | None) -> None:
    content = raw_page([raw_row(i) for i in range(3)], units=units, preamble="==PROF== x\n").encode()
    complete, partial = _outcomes(tmp_path / "x", content, range(1, len(content)))
    # Only between rows: without the last line end, and with or without that of an earlier row.
    assert (complete, partial) == (1, 4)


def test_a_raw_page_with_numbers_that_look_whole_when_cut(tmp_path: Path) -> None:
    fields = [name for name in RAW_FIELDS if name != "launch__grid_size"]
    content = (
        raw_page([raw_row(i) for i in range(2)], fields, None)
        .replace('"', "")
        .replace("void kernel_0<float>(float*, int)", "k")
        .replace("void kernel_1<float>(float*, int)", "k")
        .replace("(256, 1, 1)", '"(256, 1, 1)"')
    )
    for i in (1, 2):
        content = content.replace(f"({i}, 2, 1)", f'"({i}, 2, 1)"')
    complete, partial = _outcomes(tmp_path / "x", content.encode(), range(1, len(content)))
    assert (complete, partial) == (0, 1)


def test_a_compressed_raw_page(tmp_path: Path) -> None:
    content = write_gzip(tmp_path / "x", raw_page([raw_row(i) for i in range(3)])).read_bytes()
    assert _outcomes(tmp_path / "x", content, range(1, len(content))) == (0, 0)


_EVENTS = [
    trace_kernel(50, 1), trace_kernel(60.25, 2), trace_call(10, 1), trace_call(20.5, 2),
    trace_range("cpu_op", "aten::mm", 5, 30, {"Input Dims": [[2]]}),
]  # fmt: skip


def test_a_trace(tmp_path: Path) -> None:
    content = trace(_EVENTS, baseTimeNanoseconds=12345, traceName="x").encode()
    assert _outcomes(tmp_path / "x", content, range(1, len(content))) == (0, 0)


def test_a_compressed_trace(tmp_path: Path) -> None:
    content = write_gzip(tmp_path / "x", trace(_EVENTS)).read_bytes()
    assert _outcomes(tmp_path / "x", content, range(1, len(content))) == (0, 0)


def test_an_export(tmp_path: Path) -> None:
    kernels = [nsys_kernel(100 * i, i) for i in range(3)]
    calls = [nsys_call(i, i) for i in range(3)]
    path = nsys_export(tmp_path / "s", kernels, calls, [nsys_range(0, 9, "step")], page_size=512)
    content = path.read_bytes()
    assert _outcomes(tmp_path / "x", content, range(1, len(content))) == (0, 0)


def test_our_own_file(tmp_path: Path) -> None:
    page = write(tmp_path / "page", raw_page([raw_row(i) for i in range(3)]))
    target = tmp_path / "o.parquet"
    with open_recording(page) as recording, new_launch_file(target, recording.schema) as writer:
        for batch in recording.batches():
            writer.write(batch)
    content = target.read_bytes()
    points = [*range(1, 400), *range(400, len(content) - 400, 7), *range(len(content) - 400, len(content))]
    assert _outcomes(tmp_path / "x", content, points) == (0, 0)


def test_a_simulator_s_log(tmp_path: Path) -> None:
    text = logs.output(
        [logs.Launch(traced_id=1), logs.Launch(name="other", traced_id=2, cycles=400)]
    ).encode()
    complete, partial = _outcomes(tmp_path / "run.out", text, range(0, len(text), 13))
    assert complete and partial
