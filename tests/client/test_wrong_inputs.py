"""What a newcomer types wrong: every message names the thing, the cause and the remedy, in one line.

Typing errors, swapped arguments, wrong files, servers that are not there. In a pattern ``*`` is the rest of a
longer text and ``?`` a bracket.
"""

from __future__ import annotations

import fnmatch
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import Profile
from assay_client.cli.main import main
from assay_sampling.errors import ParameterError

Assay = Callable[..., Any]
_INPUTS = Path(__file__).parents[1] / "golden" / "inputs"

# Lines of: what was typed behind "assay" | exit code | thing | cause | remedy.
WRONG = [line.split(" | ") for line in Path(__file__).with_name("wrong_inputs.txt").read_text().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings, campaign files and a selection."""
    folder = tmp_path_factory.mktemp("inputs") / "here"
    shutil.copytree(_INPUTS, folder)
    (folder / "empty-file").touch()
    (folder / "selection.txt").write_text("hello\n")
    window, light = folder / "window.csv", folder / "light.json"
    assert main(["select", "pks", str(window), "--light", str(light), "-o", f"{folder}/selection.json"]) == 0
    return folder


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ASSAY_SERVER", "unix:no.sock")


@pytest.mark.parametrize("wrong", WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_input_is_answered_with_thing_cause_and_remedy(wrong: list[str], assay: Assay) -> None:
    typed, code, thing, cause, remedy = wrong
    ended = assay(*shlex.split(typed))
    assert (ended.code, ended.stdout) == (int(code), "")
    [line] = ended.stderr.splitlines()
    assert fnmatch.fnmatchcase(line, f"error: {thing}: {cause}; {remedy}"), line


def test_a_hundred_inputs_are_in_the_list() -> None:
    assert len({row[0] for row in WRONG}) >= 100


def test_one_reason_of_all_methods_is_said_once(assay: Assay) -> None:
    ended = assay("compare", "window.csv", "--light", "other.json")
    assert ended.stderr.count("two kinds of GPU") == 1
    ended = assay("compare", "light.json", "-m", "pks", "-m", "tbpoint", "-m", "sieve")
    assert ended.stderr.count("PKS not applicable") == 1


def test_a_profile_is_not_made_of_a_frame_directly() -> None:
    with pytest.raises(ParameterError) as raised:
        Profile([1.0, 2.0])  # type: ignore[arg-type]
    assert str(raised.value) == (
        "Profile: it is not made from an object of type list; use Profile.from_pandas(frame), "
        "Profile.from_arrow(table) or Profile.read(files)"
    )


def test_help_before_a_verb_is_its_help(assay: Assay) -> None:
    for words in (["select", "pks"], ["lab", "status"], ["admin", "token"], []):
        asked, shown = assay("help", *words), assay(*words, "--help")
        assert (asked.code, asked.stdout) == (0, shown.stdout)
    assert "Start here:" in shown.stdout and "Admin:" in shown.stdout


def test_a_dash_stands_for_standard_input(
    assay: Assay, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (folder / "window.csv").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        piped = assay("select", "pks", "-", "--json")
    assert piped.code == 0
    named = assay("select", "pks", "window.csv", "--json")
    assert piped.stdout.replace("standard-input", "window.csv").count("\n") == named.stdout.count("\n")
    assert '"launches": 80' in piped.stdout
