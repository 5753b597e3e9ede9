"""Parameters, sizes, JSON, files, folders and progress: the small parts that verbs are made of."""

from __future__ import annotations

import io
import json
import math
import os
import stat
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_client.cli import progress
from assay_client.cli.options import parse_parameters
from assay_client.cli.output import json_pieces, json_text
from assay_client.cli.reporters import text
from assay_client.cli.reporters.reading import describe_reading
from assay_client.files import write_atomically
from assay_client.places import default_state_directory, private_socket_address
from assay_core.settings.quantities import parse_bytes
from assay_sampling.errors import ParameterError, StorageError
from assay_sampling.files.watching import ReadState
from tests.support.turning_text import hidden_in


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("1", 1), ("8589934592", 8 << 30), ("8GiB", 8 << 30), ("8gi", 8 << 30), ("1.5K", 1500),
        ("2 MB", 2_000_000), ("1Ti", 1 << 40),
    ],
)  # fmt: skip
def test_bytes(given_text: str, expected: int) -> None:
    assert parse_bytes(given_text, "--memory-limit", least=1) == expected


@pytest.mark.parametrize("given_text", ["", "0", "-1", "8 apples", "GiB", "1e9", "0.1", "inf"])
def test_what_is_no_number_of_bytes(given_text: str) -> None:
    with pytest.raises(ParameterError, match="memory-limit"):
        parse_bytes(given_text, "--memory-limit", least=1)


def test_parameters_keep_what_stands_behind_the_first_equals_sign() -> None:
    assert parse_parameters(["k_max=20", " a = b=c ", "empty="]) == {"k_max": "20", "a": "b=c", "empty": ""}


@pytest.mark.parametrize("given_texts", [["k_max"], ["=3"], ["k=1", "k=2"]])
def test_parameters_that_are_none(given_texts: list[str]) -> None:
    with pytest.raises(ParameterError, match="--param"):
        parse_parameters(given_texts)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), json_values))
def test_any_document_is_strict_json_in_ascii(document: dict[str, object]) -> None:
    written = json_text(document)
    assert written.isascii()
    assert written.endswith("\n")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(written, parse_constant=refuse)


def test_a_long_document_is_written_in_pieces(tmp_path: Path) -> None:
    document = {"groups": [{"id": index, "share": index / 7} for index in range(5000)]}
    pieces = list(json_pieces(document))
    assert len(pieces) > 3
    assert "".join(pieces) == json.dumps(document, indent=2) + "\n"
    write_atomically(tmp_path / "a.json", iter(pieces))
    assert json.loads((tmp_path / "a.json").read_text()) == document


def test_numpy_values_and_paths_become_plain() -> None:
    document = {
        "a": np.float64(1.5),
        "b": np.arange(3),
        "c": np.nan,
        "d": Path("x/y"),
        "e": (np.int64(2), math.inf),
    }
    assert json.loads(json_text(document)) == {
        "a": 1.5,
        "b": [0, 1, 2],
        "c": None,
        "d": "x/y",
        "e": [2, None],
    }


@given(st.text(), st.integers(min_value=12, max_value=80))
def test_clipped_names_fit_and_are_harmless(name: str, width: int) -> None:
    shown = text.clipped(name, width)
    assert len(shown) <= width
    assert not hidden_in(shown)


def test_names_that_differ_at_their_ends_differ_when_clipped() -> None:
    name = "void gemm<float, " + "x" * 4000
    assert text.clipped(name + "128>()", 40) != text.clipped(name + "256>()", 40)


def test_numbers_for_people() -> None:
    assert text.count(1106) == "1,106"
    assert text.times(1404.8512) == "1,404.85x"
    assert text.percent(None) == "n/a"
    assert text.quantity(377754880.56, "cycle") == "377,754,880.56 cycles"
    assert text.quantity(1_500_000.0, "ns") == "1,500,000 ns (1.500 ms)"
    assert text.condition({"cache": "all", "clock": None, "sm_percent": 50.0}) == "cache=all clock=? sm=50%"


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_atomically(path, "größe")
    assert path.read_bytes() == "größe".encode()
    write_atomically(path, b"second")
    assert path.read_bytes() == b"second"
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_the_state_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_state_directory() == tmp_path / "assay" / "local"
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_state_directory() == tmp_path / "home" / ".local" / "state" / "assay" / "local"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.chdir(tmp_path)
    assert default_state_directory() == tmp_path / ".assay"


def test_a_private_socket_fits_and_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    deep.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with private_socket_address() as address:
        path = Path(address.removeprefix("unix:"))
        assert len(str(path)) < 108
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


class Terminal(io.StringIO):
    """A standard error that says it is a terminal, and tells when something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_long_work_shows_what_it_does_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
    with progress.activity("reading [a].csv") as shown:
        assert terminal.written.wait(10)
        shown.say("selecting with pks")
    assert "reading [a].csv" in terminal.getvalue()


def test_a_long_read_shows_bytes_launches_and_the_time_that_is_left() -> None:
    state = ReadState(Path("a.csv"), 10.0, read_bytes=50 << 20, total_bytes=200 << 20, launches=1_200_000)
    assert describe_reading(state, 30.0) == (
        "50.00 MiB of 200.00 MiB, 1,200,000 launches, about 1 min 0 s left"
    )
    known = ReadState(Path("a.sqlite"), 10.0, launches=1, total_launches=1001)
    assert describe_reading(known, 30.0) == "1 of 1,001 launches, about 5 h 33 min left"
    assert describe_reading(ReadState(Path("a"), 10.0), 30.0) == ""


def test_short_work_and_work_without_a_terminal_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.activity("reading"):
        pass
    assert terminal.getvalue() == ""
    elsewhere = io.StringIO()
    monkeypatch.setattr(sys, "stderr", elsewhere)
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0.0)
    with progress.activity("reading"):
        pass
    assert elsewhere.getvalue() == ""
