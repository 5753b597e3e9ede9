"""The tutorial's commands work, word for word, for somebody who has nothing but this installation."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shell import typed_in_bash

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
VERBS = [
    "doctor",
    "init",
    "plan",
    "lab submit",
    "lab status",
    "report",
    "explain",
    "inspect",
    "select",
    "evaluate",
    "compare",
    "classify",
    "export",
]
SECONDS = 200


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)


def script(home: Path) -> str:
    """All blocks in one shell, which stops at the first that fails and says where each begins."""
    parts = [f"echo '@ block {number}'\n{block}" for number, block in enumerate(blocks())]
    return "\n".join(["set -e", f"export HOME='{home}'", *parts, "echo '@ end'"])


def test_the_tutorial_shows_the_verbs_of_a_first_hour() -> None:
    text = "\n".join(blocks())
    assert [verb for verb in VERBS if not re.search(rf"^assay {verb}\b", text, re.MULTILINE)] == []


@pytest.fixture
def temporary() -> Iterator[Path]:
    """What the tutorial makes with mktemp, in a folder with a short path (sockets are made there)."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        yield Path(folder)


@pytest.mark.processes
@pytest.mark.campaigns
def test_every_command_of_the_tutorial_works(tmp_path: Path, temporary: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    code, shown = typed_in_bash(script(home), work, SECONDS, TMPDIR=str(temporary))
    last = re.findall(r"^@ (.*)$", shown, re.MULTILINE)[-1]
    logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in work.glob("*.log"))
    assert (code, last) == (0, "end"), f"{shown[-4000:]}\n{logs}"
    assert "first-1 done: 6 of 6 runs done" in shown
    assert "synthetic: no silicon produced these data" in shown
    assert sorted(path.name for path in (work / "report").iterdir()) == [
        "report-pictures",
        "report.html",
        "report.json",
        "report.md",
    ]
    assert "SYNTHETIC" in (work / "report" / "report.md").read_text()
    assert "kernel-" in (work / "handed" / "kernelslist.g").read_text()
    assert (home / ".bash_completions" / "assay.sh").is_file()
