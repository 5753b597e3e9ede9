r"""``--tables DIR``: the tables that a verb prints as LaTeX for ``\input``, with the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.client import hand_made

Assay = Callable[..., Any]


def _rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.endswith(r" \\")]
    return [[cell.strip().replace("-{}", "-") for cell in line[:-2].split("&")] for line in lines]


def test_the_tables_of_a_comparison_have_the_numbers_of_the_terminal(assay: Assay, tmp_path: Path) -> None:
    here = hand_made.write_kineto(tmp_path / "here.json", 40)
    there = hand_made.write_kineto(tmp_path / "there.json", 40, slower=1.5, gpu=hand_made.A100)
    tables = tmp_path / "tables"
    shown = assay("compare", here, "--on", there, "-m", "stem", "-m", "random", "--tables", tables)
    assert shown.code == 0, shown.stderr
    assert sorted(path.name for path in tables.iterdir()) == ["methods.tex", "other_gpus.tex"]
    printed = shown.stdout.splitlines()
    for path in tables.iterdir():
        text = path.read_text()
        assert text.count(r"\begin{tabular}{@{}") == text.count(r"\bottomrule") == 1
        assert "documentclass" not in text
        for row in _rows(text):
            numbers = [cell for cell in row if re.fullmatch(r"[\d,.]+", cell)]
            assert numbers
            assert any(set(numbers) <= set(line.split()) for line in printed), row
        assert {row[0] for row in _rows(text)} == {"stem", "random"}


def test_tables_of_synthetic_data_say_so(assay: Assay, tmp_path: Path) -> None:
    here = hand_made.write_kineto(tmp_path / "here.json", 40)
    assert assay("compare", here, "-m", "stem", "--synthetic", "--tables", tmp_path).code == 0
    assert "synthetic: no silicon produced these data" in (tmp_path / "methods.tex").read_text()
