"""DCGM's pause: the first run pauses, the last resumes, and a killed agent's pause is undone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_agent.conditions import undo_leftovers
from assay_agent.guards.dcgm import DcgmPause
from assay_agent.guards.dcgm_processes import DcgmProcess, dcgm_processes

ENGINE = DcgmProcess(7, "nv-hostengine", embedded=False)
EXPORTER = DcgmProcess(8, "dcgm-exporter", embedded=True)


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
        self.pause = DcgmPause(self.folder, self.path, lambda: [ENGINE])

    def orders(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def markers(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.holder"))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_the_last_of_two_runs_resumes(box: Box) -> None:
    with box.pause.hold("gpu-a", box.told.append):
        with box.pause.hold("gpu-b", box.told.append):
            assert box.markers() == ["gpu-a.holder", "gpu-b.holder"]
        assert "profile --resume" not in box.orders()
        assert box.markers() == ["gpu-a.holder"]
    assert box.orders() == ["profile --pause", "profile --pause", "profile --resume"]
    assert (box.markers(), box.told) == ([], [])


def test_a_run_that_fails_resumes_all_the_same(box: Box) -> None:
    with pytest.raises(ZeroDivisionError), box.pause.hold("gpu-a", box.told.append):
        1 / 0  # noqa: B018
    assert box.orders() == ["profile --pause", "profile --resume"]


def test_a_box_without_dcgm_is_left_alone(box: Box) -> None:
    with DcgmPause(box.folder, box.path, list).hold("gpu-a", box.told.append):
        pass
    assert (box.orders(), box.folder.exists()) == ([], False)


def test_a_pause_that_is_refused_is_told_and_the_run_goes_on(box: Box) -> None:
    box.broken.touch()
    ran = False
    with box.pause.hold("gpu-a", box.told.append):
        ran = True
        box.broken.unlink()
    assert ran
    assert box.told == ["nv-hostengine (process 7): dcgmi profile --pause says: Error: no profiling module"]
    with DcgmPause(box.folder, "/nowhere", lambda: [ENGINE]).hold("gpu-a", box.told.append):
        pass
    assert box.told[1:] == ["nv-hostengine (process 7): dcgmi is not in the PATH"]


HOLD = """
import sys, time
from pathlib import Path
from assay_agent.guards.dcgm import DcgmPause
from assay_agent.guards.dcgm_processes import DcgmProcess
engine = DcgmProcess(7, "nv-hostengine", embedded=False)
with DcgmPause(Path(sys.argv[1]), sys.argv[2], lambda: [engine]).hold(sys.argv[3], print):
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
    with box.pause.hold("gpu-b", box.told.append):
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


@pytest.mark.parametrize(
    ("running", "told"),
    [
        ([EXPORTER], ""),
        ([ENGINE], ""),
        ([ENGINE, EXPORTER], "not that inside dcgm-exporter (process 8)"),
        (
            [EXPORTER, DcgmProcess(9, "watcher", embedded=True)],
            "not that inside dcgm-exporter (process 8), wa",
        ),
    ],
)
def test_dcgmi_pauses_one_engine(box: Box, running: list[DcgmProcess], told: str) -> None:
    with DcgmPause(box.folder, box.path, lambda: running).hold("gpu-a", box.told.append):
        pass
    assert box.orders() == ["profile --pause", "profile --resume"]
    assert bool(box.told) is bool(told)
    assert all(told in text for text in box.told)


def test_an_engine_inside_a_program_that_dcgmi_does_not_reach_is_told(box: Box) -> None:
    box.broken.touch()
    with DcgmPause(box.folder, box.path, lambda: [EXPORTER]).hold("gpu-a", box.told.append):
        pass
    assert box.told == ["dcgm-exporter (process 8): dcgmi profile --pause says: Error: no profiling module"]


@contextlib.contextmanager
def program(path: Path, *arguments: str, library: str = "") -> Iterator[int]:
    """A program of that name, which may have a library of that name in its memory."""
    held = path.parent / library
    if library:
        held.write_bytes(b"x" * 4096)
    path.write_text(
        f"#!{sys.executable} -IS\nimport mmap, signal, sys\n"
        + (
            f"held = mmap.mmap((file := open('{held}', 'rb')).fileno(), 0, access=mmap.ACCESS_READ)\n"
            if library
            else ""
        )
        + "print('runs', flush=True)\nsignal.pause()\n"
    )
    path.chmod(0o755)
    with subprocess.Popen([path, *arguments], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


# An engine on the box, of whatever test, changes what exporters elsewhere mean.
ONE_ENGINE = pytest.mark.xdist_group("host_engine")


def found(*processes: int) -> list[tuple[str, bool]]:
    """What is found among these processes; other tests may run programs like them."""
    return [(each.name, each.embedded) for each in dcgm_processes() if each.process_id in processes]


@ONE_ENGINE
@pytest.mark.processes
def test_dcgm_inside_the_exporter_is_seen(tmp_path: Path) -> None:
    with program(tmp_path / "dcgm-exporter", "-f", "metrics.csv") as process:
        assert found(process) == [("dcgm-exporter", True)]
    for remote in (["-r", "localhost:5555"], ["--remote-hostengine-info=box:5555"]):
        with program(tmp_path / "dcgm-exporter", *remote) as process:
            assert found(process) == [("dcgm-exporter", False)]
            with program(tmp_path / "nv-hostengine") as engine:
                assert found(process, engine) == [("nv-hostengine", False)]
    # It has an engine although it is told of another one.
    with program(tmp_path / "dcgm-exporter", "-r", "x", library="libdcgmmoduleprofiling.so.4") as process:
        assert found(process) == [("dcgm-exporter", True)]


@ONE_ENGINE
@pytest.mark.processes
def test_dcgm_inside_any_program_is_seen_by_its_library(tmp_path: Path) -> None:
    with program(tmp_path / "watcher", library="libdcgm.so.4") as process:
        assert found(process) == [("watcher", True)]
        # Where the host engine lives, a program with the library alone is its client.
        with program(tmp_path / "nv-hostengine", "-n") as engine:
            assert found(process, engine) == [("nv-hostengine", False)]
    for name, library in (("watcher", "libm.so.6"), ("dcgmi", "libdcgm.so.4")):
        with program(tmp_path / name, library=library) as process:
            assert found(process) == []
