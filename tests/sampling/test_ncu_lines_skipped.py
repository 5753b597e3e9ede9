"""Output of the application among the launches of a page: counted, whatever it is, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.errors import InputError
from assay_sampling.notes.registry import make_note
from assay_sampling.readers.ncu.lines import BLOCK_BYTES, Header, LineBlock, RowScanner
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.reader_files import RAW_FIELDS, raw_line, raw_page, raw_row, write

HEADER = Header(RAW_FIELDS, raw_line(RAW_FIELDS).rstrip().encode(), 1, quoted=True)
PLAIN = st.sampled_from(
    ['"', "", " ", "\t", '""', "x", '"x', "=", "x,y", "\u00e4", "ID", "\x0b", "\x00", "1", "~"]
)
ROW = raw_line(raw_row(3)[name] for name in RAW_FIELDS).rstrip()
SPANNING = ROW.replace('"app"', '"a\n\n==x\nID\np"')


@given(
    st.lists(st.one_of(PLAIN, st.just(ROW), st.just("==PROF== Profiling"))), st.sampled_from(["\n", "\r\n"])
)
def test_lines_are_counted_as_a_reader_would_count_them(lines: list[str], end: str) -> None:
    data = "".join(line + end for line in lines).encode()
    header = Header(HEADER.fields, HEADER.text, 1, quoted=True, line_end=end.encode())
    scanner = RowScanner(Path("x.csv"), header)
    rows = scanner.rows(LineBlock(data, 10), may_be_whole=False)
    scanner.finish()
    assert rows.lines.tolist() == [10 + at for at, line in enumerate(lines) if line == ROW]
    told = [10 + at for at, line in enumerate(lines) if line.encode().strip() and line != ROW]
    assert scanner.skipped.lines == len(told)
    assert scanner.skipped.first_line == (told[0] if told else 0)
    assert scanner.announced == lines.count("==PROF== Profiling")


@given(st.lists(PLAIN), st.lists(PLAIN))
def test_units_are_found_behind_output(before: list[str], after: list[str]) -> None:
    units = raw_line(("",) * len(RAW_FIELDS)).rstrip()
    lines = [*before, units, *after, ROW]
    scanner = RowScanner(Path("x.csv"), HEADER)
    found, rest, settled = scanner.take_units(LineBlock("".join(f"{each}\n" for each in lines).encode(), 2))
    assert (found, settled) == ([""] * len(RAW_FIELDS), True)
    assert rest.first_line == 2 + len(before) + 1
    assert scanner.rows(rest, may_be_whole=False).lines.tolist() == [1 + len(lines)]


def test_a_row_over_many_lines_keeps_lines_that_look_like_nothing() -> None:
    scanner = RowScanner(Path("x.csv"), HEADER)
    data = f'"\n{SPANNING}\n"\n{ROW}\n'.encode()
    rows = scanner.rows(LineBlock(data, 1), may_be_whole=False)
    assert rows.lines.tolist() == [2, 2 + SPANNING.count("\n") + 2]
    assert scanner.skipped.lines == 2


def test_a_flood_of_quotes_between_launches_is_output(tmp_path: Path) -> None:
    rows = [raw_line(raw_row(at)[name] for name in RAW_FIELDS) for at in range(2, 4)]
    flood = '"\n' * BLOCK_BYTES
    page = write(tmp_path / "x.csv", raw_page([raw_row(0), raw_row(1)]) + flood + rows[0] + flood + rows[1])
    launches = read_launches(page)
    assert launches.table["launch"].to_pylist() == [0, 1, 2, 3]
    assert make_note("lines_skipped", lines=2 * BLOCK_BYTES, first_line=5) in launches.notes


def test_a_quote_that_is_never_closed_names_its_line(tmp_path: Path) -> None:
    for tail in ("x\n" * 1000, "x" * (9 << 20), '""' * (4 << 20)):
        path = write(tmp_path / "x.csv", raw_page([raw_row(0)]) + '"1","4242","app","h","' + tail)
        with pytest.raises(InputError, match="the row of a launch is damaged") as raised:
            read_launches(path)
        assert raised.value.line == 4


def test_a_million_lines_that_name_the_fields_are_no_header(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "ID of Kernel Name\n" * 300_000)
    with pytest.raises(InputError, match="not a profile file of a known kind"):
        read_launches(path)
