"""Names of kernels, ranges and files that turn or hide text do so on no terminal and in no figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.server_answers import Assay
from tests.support.sampling.reader_files import raw_page, raw_row, trace, trace_call, trace_kernel, write
from tests.support.turning_text import TURNED, TURNING, hidden_in


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page whose kernels differ by one such character alone, under a name with all of them."""
    names = [f"gemm{each}" for each in ("", *TURNING)]
    rows = [
        raw_row(at, Kernel_Name=name, **{"gpc__cycles_elapsed.avg": str(1000 + 97 * at)})
        for at, name in enumerate(names * 2)
    ]
    return write(tmp_path / f"page{TURNED}.csv", raw_page(rows))


def harmless(ended: Any) -> str:
    assert ended.code == 0, ended.stderr
    shown = ended.stdout + ended.stderr
    assert not hidden_in(shown), [hex(ord(each)) for each in hidden_in(shown)]
    return shown


def test_no_verb_turns_text_on_a_terminal(assay: Assay, page: Path, tmp_path: Path) -> None:
    selection = tmp_path / f"selection{TURNED}.json"
    assert "<U+202E>" in harmless(assay("inspect", page))
    selected = harmless(assay("select", "sieve", page, "--all", "-o", selection))
    assert all(f"gemm<U+{ord(each):04X}>" in selected for each in TURNING)
    for command in (
        ("explain", selection), ("explain", selection, page, "--launch", "7"), ("evaluate", selection, page),
        ("compare", page),
    ):  # fmt: skip
        harmless(assay(*command))
    as_json = assay("inspect", page, "--json")
    assert not hidden_in(as_json.stdout)
    assert json.loads(as_json.stdout)["files"][0]["kernels"] == len(TURNING) + 1


def test_a_refusal_turns_no_text(assay: Assay, tmp_path: Path) -> None:
    ended = assay("inspect", write(tmp_path / f"no{TURNED}.csv", f"{TURNED}\n"))
    assert ended.code != 0
    assert not hidden_in(ended.stderr) and "no" in ended.stderr
    ended = assay("select", f"pks{TURNED}", tmp_path / "x")
    assert ended.code != 0


def test_a_trace_with_turned_names(assay: Assay, tmp_path: Path) -> None:
    events = [each for i in range(4) for each in (
        trace_call(i * 10, i), trace_kernel(i * 10 + 5, i, name=f"k{TURNED}{i % 2}"),
    )]  # fmt: skip
    path = write(tmp_path / "x.json", trace(events))
    assert "k" in harmless(assay("select", "random", path))


@pytest.mark.parametrize("suffix", [".svg", ".json"])
def test_no_figure_of_a_verb_turns_text(assay: Assay, page: Path, tmp_path: Path, suffix: str) -> None:
    figure = tmp_path / f"figure{suffix}"
    harmless(assay("select", "sieve", page, "--plot", figure))
    text = figure.read_text()
    assert not hidden_in(text)
    assert "U+202E" in text
