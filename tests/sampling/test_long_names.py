"""Names beyond all reason are refused in one place, with the file and, where there are lines, the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay_sampling.errors import InputError, LaunchTableError
from assay_sampling.launches.table import LONGEST_NAME_BYTES, Names
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.reader_files import (
    nsys_call,
    nsys_export,
    nsys_kernel,
    nsys_range,
    raw_page,
    raw_row,
    trace,
    trace_kernel,
    write,
)

LONG = "k" * (LONGEST_NAME_BYTES + 1)


def refused(path: Path) -> InputError:
    with pytest.raises(InputError) as raised:
        read_launches(path)
    assert raised.value.path == str(path)
    assert len(str(raised.value)) < 2000 and raised.value.remedy
    return raised.value


def test_the_bound_counts_bytes_and_is_exact() -> None:
    names = Names()
    for text in ("k" * LONGEST_NAME_BYTES, "\u00e4" * (LONGEST_NAME_BYTES // 2)):
        names.intern(text)
    for text in (LONG, "\u00e4" * (LONGEST_NAME_BYTES // 2 + 1)):
        with pytest.raises(LaunchTableError, match="bytes, and one may have 1,048,576"):
            names.intern(text)
    assert len(names) == 2


def test_a_page_with_a_long_name_names_its_line(tmp_path: Path) -> None:
    rows = [raw_row(0), raw_row(1), raw_row(2, Kernel_Name=LONG), raw_row(3)]
    error = refused(write(tmp_path / "x.csv", raw_page(rows)))
    assert error.line == 5
    assert "1,048,577 bytes" in error.cause


def test_a_name_as_long_as_may_be_is_read(tmp_path: Path) -> None:
    page = write(tmp_path / "x.csv", raw_page([raw_row(0, Kernel_Name=LONG[1:])]))
    assert len(read_launches(page)) == 1


def test_a_trace_with_a_long_name_names_its_event(tmp_path: Path) -> None:
    events = [trace_kernel(1, 1), trace_kernel(2, 2, name="n" * (60 << 20))]
    error = refused(write(tmp_path / "x.json", trace(events)))
    assert "event 1 of traceEvents" in error.cause and error.field == "name"


def test_a_long_string_that_nobody_reads_is_left_out(tmp_path: Path) -> None:
    kernel = trace_kernel(1, 1)
    kernel["args"]["note"] = "n" * (4 << 20)
    assert len(read_launches(write(tmp_path / "x.json", trace([kernel])))) == 1


def test_shapes_of_inputs_are_bounded_too(tmp_path: Path) -> None:
    text = trace([trace_kernel(10, 1, **{"External id": 7})])
    document = json.loads(text)
    document["traceEvents"].append(
        {"ph": "X", "cat": "cpu_op", "name": "aten::cat", "ts": 0, "dur": 100, "pid": 1, "tid": 1,
         "args": {"External id": 7, "Input Dims": [[1, 2]] * 400_000}}
    )  # fmt: skip
    document["traceEvents"][0]["args"]["External id"] = 7
    assert "bytes, and one may have" in refused(write(tmp_path / "x.json", json.dumps(document))).cause


def test_an_export_with_a_long_kernel_name(tmp_path: Path) -> None:
    path = nsys_export(tmp_path / "x.sqlite", [nsys_kernel(1000, 1)], [nsys_call(500, 1)], strings={1: LONG})
    assert "1,048,577 bytes" in refused(path).cause


def test_a_path_of_many_long_ranges_is_refused_before_it_is_joined(tmp_path: Path) -> None:
    ranges = [nsys_range(i, 10**6 - i, chr(97 + i) * (300 << 10)) for i in range(4)]
    path = nsys_export(tmp_path / "x.sqlite", [nsys_kernel(1000, 1)], [nsys_call(500, 1)], ranges)
    error = refused(path)
    assert "the names of 4 nested ranges" in error.cause and "1,228,803 characters" in error.cause
