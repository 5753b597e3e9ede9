"""The page of what is proved names commands and tests that exist."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "hardware.md").read_text()
HEADER = "| item | on a GPU | shown without a GPU | would be shown by |"


def items() -> list[list[str]]:
    lines = PAGE.split(HEADER)[1].splitlines()[2:]
    rows = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def parts() -> set[str]:
    """The parts of the proof, as its source has them."""
    (found,) = re.findall(r"^PARTS = \((.*)\)$", (ROOT / "tests/gpu/plan.py").read_text(), re.MULTILINE)
    return set(re.findall(r'"(\w+)"', found))


def check_command(command: str) -> None:
    """Fails where a command, or a test, is not there."""
    if command.startswith("make "):
        assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    elif command.startswith("python -m tests.gpu"):
        named = re.search(r"--part (\S+)", command)
        assert named and set(named[1].split(",")) <= parts(), command
    elif command.startswith("tests/"):
        assert (ROOT / command).is_file(), command


@pytest.mark.parametrize("item", items(), ids=lambda item: item[0])
def test_every_item_says_what_shows_it(item: list[str]) -> None:
    assert len(item) == 4
    _, on_a_gpu, _, by = item
    assert on_a_gpu in ("not yet", "needs none") or re.search(r"\d{4}-\d\d-\d\d", on_a_gpu), "GPU and date"
    commands = re.findall(r"`([^`]+)`", by)
    proofs = [c for c in commands if c.startswith(("make ", "python -m tests.gpu", "tests/"))]
    assert proofs or by.startswith("by hand:"), by


FIRST_SCREEN_LINES = 24


def test_the_readme_says_on_its_first_screen_what_is_proved_today() -> None:
    """Nothing, as long as no row of the table names a GPU and a date; and where that is told in full."""
    screen = " ".join((ROOT / "README.md").read_text().splitlines()[:FIRST_SCREEN_LINES])
    assert "(docs/hardware.md)" in screen
    proved = [row[0] for row in items() if re.search(r"\d{4}-\d\d-\d\d", row[1])]
    nothing = "nothing is proved on a GPU"
    assert (nothing in screen) == (nothing in PAGE) == (not proved)


def test_every_command_and_test_that_is_named_exists() -> None:
    named = re.findall(r"`((?:make |python -m tests\.gpu|tests/)[^`]*)`", PAGE)
    checkable = [c for c in named if not c.startswith(("tests/data/", "tests/gpu/workloads"))]
    assert len(checkable) > 25
    for command in checkable:
        check_command(command)


def test_the_exit_statuses_are_those_of_the_script() -> None:
    source = (ROOT / "tests/gpu/__main__.py").read_text()
    (values,) = re.findall(r"^HOLDS, FAILS, PARTLY, NOTHING_TO_RUN_ON = (.*)$", source, re.MULTILINE)
    table = PAGE.split("| exit status | meaning |")[1].split("\n\n")[0]
    documented = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    by_signal = str(128 + signal.SIGTERM)
    assert sorted([*values.split(", "), "2", by_signal], key=int) == documented


def test_options_parts_and_workloads_of_the_page_are_those_of_the_script() -> None:
    source = (ROOT / "tests/gpu/__main__.py").read_text() + (ROOT / "tests/gpu/carry.py").read_text()
    options = set(re.findall(r"--[a-z][a-z-]+", PAGE)) - {"--clock-control", "--autotune"}
    assert len(options) >= 10
    assert [option for option in sorted(options) if f'"{option}"' not in source] == []
    plan = (ROOT / "tests/gpu/plan.py").read_text()
    named = [word for words in re.findall(r"--workloads ([\w,]+)", PAGE) for word in words.split(",")]
    assert len(named) >= 8
    assert [name for name in named if f'"{name}": (' not in plan] == []
    assert {part for words in re.findall(r"--part ([\w,]+)", PAGE) for part in words.split(",")} <= parts()
