"""The README's commands about recordings work as printed, on the sample that its first line writes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.samples.folder import FILES
from assay_sampling.readers.inspection.recording import inspect_recording
from tests.support.readme import readme_blocks

Assay = Callable[..., Any]
ON_RECORDINGS = ("You simulate GPUs", "You measure workloads")
# Starts a server and an agent: typed by test_readme_typed.
MEASURES = ["assay", "run"]


def commands(heading: str) -> list[list[str]]:
    lines = [shlex.split(line, comments=True) for line in readme_blocks()[heading]]
    return [shlex.split(each) for line in lines for each in shlex.join(line).split("'&&'")]


def test_each_part_of_the_readme_has_its_block() -> None:
    assert list(readme_blocks()) == [*ON_RECORDINGS, "You run a lab"]
    assert readme_blocks()["You simulate GPUs"][0].startswith("assay samples sample && cd sample ")


def test_the_commands_on_recordings_work_as_printed(
    assay: Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = [command for heading in ON_RECORDINGS for command in commands(heading)]
    assert len(typed) >= 11
    for words in typed:
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
        elif words[:2] != MEASURES:
            ended = assay(*words[1:])
            assert (ended.code, ended.stderr) == (0, ""), (words, ended.stderr)
    written = {path.name for path in (tmp_path / "sample").iterdir()}
    made = {"selection.json", "for-accel-sim", "groups.csv", "launches.pdf"}
    assert written == {file.name for file in FILES} | made


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        # A database of SQLite holds the moment of its export.
        if path.is_file() and path.suffix != ".sqlite"
    }


def test_the_sample_is_small_synthetic_and_the_same_each_time(assay: Assay, tmp_path: Path) -> None:
    ended = assay("samples", tmp_path / "one", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert document["synthetic"] is True
    assert [Path(file["path"]).name for file in document["files"]] == [file.name for file in FILES]
    assert assay("samples", tmp_path / "two").code == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    whole = sum(path.stat().st_size for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert whole < 1 << 20
    readme = (tmp_path / "one" / "README.md").read_text()
    assert "**Everything here is synthetic**" in readme
    assert all(f"| {file.name} |" in readme for file in FILES)


@pytest.mark.parametrize(
    ("name", "launches"),
    [("profile.csv", 280), ("other_gpu.csv", 280), ("window.csv", 100), ("whole.sqlite", 280)],
)
def test_every_recording_of_the_sample_is_marked(sample: Path, name: str, launches: int) -> None:
    found = inspect_recording(sample / name)
    assert (found["launches"], found["synthetic"]) == (launches, True)


def test_the_log_of_the_sample_says_that_no_simulator_ran(sample: Path) -> None:
    found = inspect_recording(sample / "simulator.out.gz")
    assert (found["launches"], found["simulated"]) == (280, True)
    assert [note["code"] for note in found["notes"]] == ["log_synthetic"]
    trace = (sample / "traces" / "kernel-1.traceg").read_text()
    assert "ASSAY_SYNTHETIC" in trace


def test_nothing_is_replaced_unasked(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "profile.csv").write_text("mine")
    ended = assay("samples", tmp_path)
    assert (ended.code, ended.stdout) == (8, "")
    assert ended.stderr == (
        f"error: {tmp_path / 'profile.csv'}: it exists already; name another folder, or replace the sample "
        "with --force\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["profile.csv"]
    assert (tmp_path / "profile.csv").read_text() == "mine"
    assert assay("samples", tmp_path, "--force").code == 0
    assert (tmp_path / "profile.csv").read_text() != "mine"


def test_a_folder_that_cannot_be_made_is_named(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = assay("samples", tmp_path / "file" / "sample")
    assert ended.code == 8
    assert "file/sample" in ended.stderr


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from assay_client.samples.folder import write_samples  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("sample")
    write_samples(folder)
    return folder
