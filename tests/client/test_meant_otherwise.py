"""What people type or give by mistake is named for what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Assay = Callable[..., Any]


@pytest.mark.parametrize(
    ("arguments", "write"),
    [
        (["select", "m.csv", "pks"], "write: assay select pks m.csv"),
        (["select", "m n.csv", "more.csv", "sieve"], "write: assay select sieve 'm n.csv' more.csv"),
        (["pks", "m.csv"], "write: assay select pks m.csv"),
    ],
)
def test_words_in_another_order(assay: Assay, arguments: list[str], write: str) -> None:
    ended = assay(*arguments)
    assert (ended.code, write in ended.stderr) == (2, True)


def test_a_file_that_is_named_like_a_method_is_a_file(
    assay: Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pks").write_text("nothing of a profiler\n")
    ended = assay("select", "unknown", "pks")
    assert ended.code != 0
    assert "comes before" not in ended.stderr


@pytest.mark.parametrize(("separator", "named"), [(";", "semicolons"), ("\t", "tabs")])
@pytest.mark.parametrize("before", ["", "==PROF== Connected to process 1\n"])
def test_pages_from_a_spreadsheet(
    assay: Assay, tmp_path: Path, separator: str, named: str, before: str
) -> None:
    header, row = ["ID", "Process ID", "Kernel Name", "Grid Size"], ["0", "1", "k", "(1, 1, 1)"]
    lines = [separator.join(f'"{cell}"' for cell in cells) for cells in (header, row)]
    path = tmp_path / "page.csv"
    path.write_text(before + "\n".join(lines) + "\n")
    ended = assay("inspect", path)
    line = 1 + before.count("\n")
    assert ended.code == 3
    assert f"{path}:{line}: its fields are separated by {named}" in ended.stderr
