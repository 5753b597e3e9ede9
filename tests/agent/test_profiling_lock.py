"""Profiles of several GPUs of a box take turns where Nsight Compute needs it, also of two agents."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.tool_version import ToolVersion
from assay_agent.profilers.ncu import profiling_lock
from assay_agent.profilers.ncu.profiling_lock import profiling_turn, takes_turns
from assay_sampling.running.failures import FailureClass
from tests.support.agent.fake_nvml import FakeNvml
from tests.support.agent.fake_server import wait_for
from tests.support.agent.profiling_turns import profile

pytestmark = pytest.mark.processes

# It says so where two profile at a time. Its own lock file lies in TMPDIR. Only SIGKILL ends it, as a tool
# that hangs.
NCU = """#!/bin/sh
trap '' TERM
case $1 in
  --version) echo "Version {version}"; exit ;;
  --help) echo "  --kill arg"; exit ;;
esac
case " $* " in *" --log-file "*) ;; *) exit 1 ;; esac
exec 9> "$TMPDIR/nsight-compute-lock"
flock 9
mkdir "{folder}/busy" || echo overlap >> "{folder}/events"
echo profile >> "{folder}/events"
sleep {seconds}
rmdir "{folder}/busy"
"""
ROOT = Path(__file__).parents[2]
AGENT = (sys.executable, "-m", "tests.support.agent.profiling_turns")


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(profiling_lock, "BOX_FOLDER", tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(tmp_path / "nvml.json"))
    install(tmp_path, "2024.1.1.0")
    return tmp_path


def install(folder: Path, version: str, seconds: float = 0.5) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    ncu = folder / "bin" / "ncu"
    ncu.write_text(NCU.format(version=version, folder=folder, seconds=seconds))
    ncu.chmod(0o755)


def events(folder: Path) -> list[str]:
    return (folder / "events").read_text().split()


def in_threads(box: Path) -> None:
    threads = [threading.Thread(target=profile, args=(box, name)) for name in ("a", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_two_slots_of_an_agent_take_turns(box: Path) -> None:
    in_threads(box)
    assert events(box) == ["profile"] * 3


def test_a_release_that_locks_one_gpu_each_needs_no_turns(box: Path) -> None:
    install(box, "2025.1.0.0", seconds=5.0)  # they do not start at the same moment
    in_threads(box)
    assert events(box).count("overlap") >= 1


def test_two_agents_of_a_box_take_turns_whatever_their_folders_for_temporary_files(box: Path) -> None:
    install(box, "2024.1.1.0", seconds=3.0)  # they do not start at the same moment
    agents = []
    for name in ("a", "b"):
        temporary = box / f"tmp-{name}"
        temporary.mkdir()
        command = [*AGENT, str(box), name]
        agents.append(subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}))
    assert [agent.wait(120) for agent in agents] == [0, 0]
    assert events(box) == ["profile"] * 2


def test_a_run_that_is_cancelled_while_it_waits_profiles_nothing(box: Path) -> None:
    cancelled = threading.Event()
    with profiling_turn(threading.Event(), print) as held:
        assert held
        threading.Timer(0.5, cancelled.set).start()
        assert profile(box, "a", cancelled) is None
    assert not (box / "events").exists()


def test_the_tool_holds_the_turn_also_where_its_agent_dies(box: Path) -> None:
    """The next agent must not profile beside an ncu that has not yet been ended."""
    command = [*AGENT, str(box), "a"]
    install(box, "2024.1.1.0", seconds=30.0)
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(box)}) as agent:
        wait_for((box / "events").exists)
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        with (box / f"assay-{os.getuid()}" / "nsight-compute-turn").open("r+") as lock:
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_EX)  # the supervisor kills the tool after two seconds


@pytest.mark.parametrize("what", ["open to others", "a link", "a file"])
def test_a_folder_that_is_not_this_users_own_is_refused(box: Path, what: str) -> None:
    """Whoever may write to /tmp can have made it; another TMPDIR would not help."""
    folder = box / f"assay-{os.getuid()}"
    (box / "elsewhere").mkdir(mode=0o700)
    if what == "a link":
        folder.symlink_to(box / "elsewhere")
    elif what == "a file":
        folder.touch(mode=0o700)
    else:
        folder.mkdir(mode=0o755)
    with pytest.raises(ProfilerError) as caught:
        profiling_turn(threading.Event(), print).__enter__()
    assert caught.value.failure_class is FailureClass.LOCK_FILE
    assert "TMPDIR" not in caught.value.remedy
    assert list((box / "elsewhere").iterdir()) == []


def test_who_waits_for_a_lock_that_was_removed_takes_the_next_one(box: Path) -> None:
    """Programs that tidy /tmp remove it. The old file must not give a turn beside that of the new one."""
    order: list[str] = []

    def wait_for_turn() -> None:
        with profiling_turn(threading.Event(), print):
            order.append("waited")

    waiting = threading.Thread(target=wait_for_turn)
    with contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        first.enter_context(profiling_turn(threading.Event(), print))
        waiting.start()
        time.sleep(0.3)
        shutil.rmtree(box / f"assay-{os.getuid()}")
        second.enter_context(profiling_turn(threading.Event(), print))
        first.close()
        time.sleep(0.5)
        assert order == []
    waiting.join(60)
    assert order == ["waited"]


def test_a_disk_without_locks_is_told(box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(profiling_lock.fcntl, "flock", refuse)
    with pytest.raises(ProfilerError, match="No locks available") as caught:
        profiling_turn(threading.Event(), print).__enter__()
    assert caught.value.failure_class is FailureClass.LOCK_FILE


def test_a_lock_that_is_a_link_is_refused(box: Path) -> None:
    folder = box / f"assay-{os.getuid()}"
    folder.mkdir(mode=0o700)
    (folder / "nsight-compute-turn").symlink_to(box / "elsewhere")
    with pytest.raises(ProfilerError, match="take turns"), profiling_turn(threading.Event(), print):
        pass
    with contextlib.suppress(FileNotFoundError):
        pytest.fail(str((box / "elsewhere").stat()))


@pytest.mark.parametrize(
    ("version", "turns"), [("2022.3.0.0", True), ("2024.3.2", True), ("2025.1.0", False), ("2026.3.1", False)]
)
def test_which_releases_take_turns(version: str, turns: bool) -> None:
    assert takes_turns(ToolVersion("ncu", version)) is turns
