"""DCGM's pause: the first run pauses, the last resumes, and a killed agent's pause is undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from fake_server import wait_for

from assay_agent.conditions import undo_leftovers
from assay_agent.telemetry.dcgm import DcgmPause, dcgm_runs


class Box:
    """A box with a stand-in for dcgmi that notes its orders; ``broken`` makes it fail."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.broken = folder / "dcgm", folder / "orders", folder / "broken"
        tools = folder / "bin"
        tools.mkdir()
        script = tools / "dcgmi"
        script.write_text(
            f'#!/bin/sh\n[ -e "{self.broken}" ] && {{ echo "Error: no profiling module" >&2; exit 250; }}\n'
            f'echo "$*" >> "{self.log}"\n'
        )
        script.chmod(0o755)
        self.path = f"{tools}:/usr/bin:/bin"
        self.told: list[str] = []
        self.pause = DcgmPause(self.folder, self.path, lambda: True)

    def orders(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def markers(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.holder"))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_the_last_of_two_runs_resumes(box: Box) -> None:
    with box.pause.held("gpu-a", box.told.append):
        with box.pause.held("gpu-b", box.told.append):
            assert box.markers() == ["gpu-a.holder", "gpu-b.holder"]
        assert "profile --resume" not in box.orders()
        assert box.markers() == ["gpu-a.holder"]
    assert box.orders() == ["profile --pause", "profile --pause", "profile --resume"]
    assert (box.markers(), box.told) == ([], [])


def test_a_run_that_fails_resumes_all_the_same(box: Box) -> None:
    with pytest.raises(ZeroDivisionError), box.pause.held("gpu-a", box.told.append):
        1 / 0  # noqa: B018
    assert box.orders() == ["profile --pause", "profile --resume"]


def test_a_box_without_dcgm_is_left_alone(box: Box) -> None:
    with DcgmPause(box.folder, box.path, lambda: False).held("gpu-a", box.told.append):
        pass
    assert (box.orders(), box.folder.exists()) == ([], False)


def test_a_pause_that_is_refused_is_told_and_the_run_goes_on(box: Box) -> None:
    box.broken.touch()
    ran = False
    with box.pause.held("gpu-a", box.told.append):
        ran = True
        box.broken.unlink()
    assert ran
    assert box.told == ["dcgmi profile --pause says: Error: no profiling module"]
    with DcgmPause(box.folder, "/nowhere", lambda: True).held("gpu-a", box.told.append):
        pass
    assert box.told[1:] == ["DCGM runs, and dcgmi is not in the PATH"]


HOLD = """
import sys, time
from pathlib import Path
from assay_agent.telemetry.dcgm import DcgmPause
with DcgmPause(Path(sys.argv[1]), sys.argv[2], lambda: True).held(sys.argv[3], print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.mark.processes
def test_a_killed_agent_leaves_a_pause_that_the_next_start_undoes(box: Box) -> None:
    command = [sys.executable, "-c", HOLD, str(box.folder), box.path, "gpu-a"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        box.pause.resume_leftovers()  # its holder lives
        assert box.orders() == ["profile --pause"]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert box.markers() == ["gpu-a.holder"]
    with box.pause.held("gpu-b", box.told.append):
        box.pause.resume_leftovers()  # another run needs the pause, and will undo it
        assert box.orders()[1:] == ["profile --pause"]
    assert box.orders()[2:] == ["profile --resume"]
    box.pause.resume_leftovers()
    assert (len(box.orders()), box.markers()) == (3, [])


@pytest.mark.processes
def test_what_cannot_be_resumed_is_tried_again_at_the_next_start(box: Box) -> None:
    command = [sys.executable, "-c", HOLD, str(box.folder), box.path, "gpu-a"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait()
    box.broken.touch()
    box.pause.resume_leftovers()
    assert box.markers() == ["gpu-a.holder"]
    box.broken.unlink()
    box.pause.resume_leftovers()
    assert (box.orders(), box.markers()) == (["profile --pause", "profile --resume"], [])


def test_an_agent_that_starts_resumes_what_a_killed_one_left_paused(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", box.path)
    folder = tmp_path / f"assay-{os.getuid()}" / "dcgm"
    folder.mkdir(parents=True)
    (folder / "gpu-a.holder").touch()
    undo_leftovers(tmp_path / "state")
    assert (box.orders(), list(folder.glob("*.holder"))) == (["profile --resume"], [])


def test_the_host_engine_is_told_by_its_name(tmp_path: Path) -> None:
    assert not dcgm_runs(tmp_path)
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "comm").write_text("nv-hostengine\n")
    wait_for(lambda: dcgm_runs(tmp_path))
