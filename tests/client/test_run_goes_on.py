"""``assay run`` goes on with what an earlier run of the same file left, and begins anew where it must."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay_client.one_box.basis import Basis, files_of
from assay_client.one_box.unfinished import Notes, Source, begin
from assay_sampling.errors import CampaignError
from tests.support.client.stopped_run import run_until
from tests.support.integration.measured_once import lost_attempts
from tests.support.integration.paced_recordings import write_paced_recordings

BASIS = Basis("t" * 64, {"train.py": "1", "/usr/bin/python": "2"}, "550.54", ("V100 (GPU-1)",))


class Server:
    """Answers a client with campaigns that it remembers by key, and notes what was asked of them."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.keys: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []
        self.answer_is_lost = False

    def submit_text(self, _text: str, _path: Path, key: str) -> dict[str, Any]:
        campaign_id = self.keys.setdefault(key, f"c-{len(self.keys) + 1}")
        self.states.setdefault(campaign_id, "running")
        if self.answer_is_lost:
            raise KeyboardInterrupt
        return {"campaign_id": campaign_id}

    def summary(self, campaign_id: str) -> dict[str, Any]:
        state = self.states[campaign_id]
        return {
            "state": state,
            "paused": state == "paused",
            "runs_paused": 0,
            "runs_done": 1,
            "runs_total": 4,
        }

    def cancel(self, campaign_id: str) -> None:
        self.asked.append(("cancel", campaign_id))
        self.states[campaign_id] = "cancelled"

    def retry(self, campaign_id: str) -> None:
        self.asked.append(("retry", campaign_id))

    def resume(self, campaign_id: str) -> None:
        self.asked.append(("resume", campaign_id))

    def pause(self, campaign_id: str) -> None:
        if self.states[campaign_id] != "running":
            raise CampaignError(campaign_id, "nothing can be paused", "")
        self.asked.append(("pause", campaign_id))
        self.states[campaign_id] = "paused"


class Box:
    """A state folder with a server, in which runs begin."""

    def __init__(self, folder: Path) -> None:
        self.server, self.notes = Server(), Notes(folder)
        self.said: list[str] = []

    def begin(self, basis: Basis = BASIS, *, file: str = "a.yaml", anew: bool = False) -> str:
        self.said.clear()
        source = Source("text", Path(file), file)
        client: Any = self.server
        return begin(client, self.notes, source, basis, anew=anew, say=self.said.append).campaign_id

    def end(self, file: str = "a.yaml") -> None:
        note = self.notes.of(file)
        assert note is not None
        self.notes.keep(replace(note, ended=True))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_first_run_says_nothing_and_an_interrupted_one_goes_on(box: Box) -> None:
    assert (box.begin(), box.said) == ("c-1", [])
    assert box.begin() == "c-1"
    assert box.said == ["c-1 continues where it was interrupted: 1 of 4 runs are done (--new starts over)"]
    assert box.server.asked == []


def test_a_run_that_was_killed_before_the_server_answered_is_found_by_its_key(box: Box) -> None:
    box.server.answer_is_lost = True
    with pytest.raises(KeyboardInterrupt):
        box.begin()
    box.server.answer_is_lost = False
    assert box.begin() == "c-1"


def test_a_finished_run_begins_anew_and_says_so(box: Box) -> None:
    box.begin()
    box.end()
    assert (box.begin(), box.said) == ("c-2", ["c-1 is finished: this run starts over"])
    assert box.server.asked == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (replace(BASIS, files={**BASIS.files, "train.py": "3"}), "train.py changed"),
        (replace(BASIS, files={"train.py": "1"}), "/usr/bin/python changed"),
        (replace(BASIS, driver="560.1"), "the driver was 550.54 and is 560.1"),
        (replace(BASIS, gpus=()), "the GPUs were V100 (GPU-1) and are none"),
        (replace(BASIS, text="u"), "the campaign or the options differ"),
    ],
    ids=["program", "interpreter", "driver", "GPU", "text"],
)
def test_a_run_that_would_rest_on_something_else_begins_anew_and_says_why(
    box: Box, now: Basis, said: str
) -> None:
    box.begin()
    assert box.begin(now) == "c-2"
    assert box.said == [f"c-1 is not finished, and this run starts over: {said}"]
    assert box.server.asked == [("cancel", "c-1")]
    assert box.begin(now) == "c-2"


def test_new_begins_again(box: Box) -> None:
    box.begin()
    assert box.begin(anew=True) == "c-2"
    assert box.said == ["c-1 is not finished, and this run starts over: --new asks for it"]


def test_another_file_holds_the_unfinished_one_until_it_is_run_again(box: Box) -> None:
    box.begin()
    assert box.begin(file="b.yaml") == "c-2"
    assert box.server.asked == [("pause", "c-1")]
    assert box.begin() == "c-1"
    assert box.server.asked[1:] == [("resume", "c-1"), ("pause", "c-2")]


def test_what_was_cancelled_because_the_box_could_not_go_on_waits_again(box: Box) -> None:
    box.begin()
    box.server.states["c-1"] = "cancelled"
    assert box.begin() == "c-1"
    assert box.server.asked == [("retry", "c-1")]


@pytest.mark.parametrize("damage", [b"", b"\xff", b"[]", b'{"identity": 1}'])
def test_a_damaged_note_is_as_none(box: Box, tmp_path: Path, damage: bytes) -> None:
    box.begin()
    [path] = tmp_path.glob("*.json")
    path.write_bytes(damage)
    assert (box.begin(), box.said) == ("c-2", [])


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda folder: write(folder / "train.py", "two"), True),
        (lambda folder: write(folder / "data.bin", "two"), True),
        (lambda folder: (folder / "run.sh").unlink(), True),
        (lambda folder: write(folder / "other.py", "two"), False),
        (lambda folder: write(folder / "run.sh", "one"), False),
    ],
    ids=["script", "named by an option", "program is gone", "not named", "same content"],
)
def test_programs_are_known_by_their_content(
    tmp_path: Path, change: Callable[[Path], None], *, differs: bool
) -> None:
    for name in ("run.sh", "train.py", "data.bin", "other.py"):
        write(tmp_path / name, "one")
    commands = [["./run.sh", "train.py", "--data=data.bin", "--epochs", "3", "--flag"]]
    before = files_of(commands, ["missing.json"], tmp_path)
    assert set(before) == {"./run.sh", "train.py", "data.bin", "missing.json"}
    change(tmp_path)
    assert (files_of(commands, ["missing.json"], tmp_path) != before) is differs


@pytest.mark.processes
def test_a_killed_run_goes_on_and_measures_nothing_twice(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(write_paced_recordings(tmp_path, runs=2, launches=40, seconds=1.5))
    words = [campaign, "--state", tmp_path / "state"]
    killed = run_until(words, ": 1 of 2 runs done", signal.SIGKILL)
    last = run_until(words, None, signal.SIGKILL)
    assert (killed.code, last.code) == (-signal.SIGKILL, 0)
    assert (
        last.lines[0] == "chaos-1 continues where it was interrupted: 1 of 2 runs are done (--new starts "
        "over)"
    )
    assert last.lines[-1].startswith("chaos-1 done: 2 of 2 runs done")
    assert lost_attempts(tmp_path / "state", "chaos-1") <= 1
