"""NVIDIA's own MPS control daemon without a GPU: what it does, and how the agent drives it.

The daemon, its pipe and its log are private to a test; no other daemon of the machine is touched. Without a
GPU it has no clients, so a run at a share of the SMs always ends at its probe.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.conditions import undo_leftovers
from assay_agent.conditions.leftovers import end_daemon
from assay_agent.conditions.mps_control import (
    PROGRAM,
    MpsDaemon,
    MpsError,
    MpsFolders,
    control_release,
)
from assay_agent.conditions.mps_daemons import mps_daemons
from assay_agent.conditions.sm_partition import add_partition
from assay_agent.conditions.sm_probe import ProbeError, probe_sms
from assay_agent.execution.errors import ProfilerError
from assay_sampling.running.failures import FailureClass
from tests.support.agent.conditions_bench import HALF_AT_BASE, Bench, Killed
from tests.support.agent.nvidia_tools import RealTools, processes_of
from tests.support.machine.commands import running_commands

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("mps_daemons")]

SECONDS = 20.0


class Daemon:
    """One private daemon in ``folder``."""

    def __init__(self, nvidia: RealTools, folder: Path) -> None:
        self.pipe, self.log = folder / "pipe", folder / "log"
        self.program = nvidia.generation.mps_control
        self.environment = {
            **nvidia.environment(driver=True),
            "PATH": f"{self.program.parent}:/usr/bin:/bin",
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(self.log),
        }
        for path in (self.pipe, self.log):
            path.mkdir(mode=0o700)

    def run(self, *arguments: str, command: str = "") -> tuple[int, str]:
        """Exit status and output of the control program."""
        ended = subprocess.run(
            [self.program, *arguments], input=command, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
        )  # fmt: skip
        return ended.returncode, ended.stdout.strip()

    def tell(self, command: str) -> tuple[int, str]:
        return self.run(command=command + "\n")

    @property
    def control_log(self) -> str:
        return (self.log / "control.log").read_text()

    def says(self, words: str) -> None:
        _until(lambda: words in self.control_log)


def _until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def daemon(nvidia: RealTools, tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(nvidia, tmp_path)
    yield made
    with contextlib.suppress(subprocess.TimeoutExpired):
        made.tell("quit -t 1")


def test_the_life_of_a_daemon(daemon: Daemon) -> None:
    assert daemon.tell("get_server_list") == (1, "Cannot find MPS control daemon process")
    assert daemon.run("-d") == (0, "")
    assert daemon.run("-d") == (1, "An instance of this daemon is already running")
    assert daemon.tell("get_server_list") == (0, "")
    assert daemon.tell("quit") == (0, "")
    daemon.says("Exit with status 0")
    _until(lambda: daemon.tell("get_server_list")[0] == 1)
    # What is left of a dead daemon is no sign of a living one.
    left = {"control", "control_lock", "control_privileged"}
    assert {path.name for path in daemon.pipe.iterdir()} == left


def test_a_daemon_can_be_started_again_in_the_same_folder(daemon: Daemon, tmp_path: Path) -> None:
    for _ in range(2):
        assert daemon.run("-d") == (0, "")
        assert daemon.tell("quit") == (0, "")
        _until(lambda: daemon.tell("get_server_list")[0] == 1)
        # It answers nobody already, and holds its lock until its process has ended.
        _until(lambda: not processes_of(tmp_path))


def test_the_status_says_nothing_of_a_command(daemon: Daemon) -> None:
    """Unknown commands and shares out of range end with 0; only the text or the value tells."""
    daemon.run("-d")
    assert daemon.tell("bogus") == (0, 'Unknown command "bogus"')
    assert daemon.tell("get_default_active_thread_percentage") == (0, "100.0")
    assert daemon.tell("set_default_active_thread_percentage 30") == (0, "30.0")
    assert daemon.tell("set_default_active_thread_percentage 300") == (0, "30.0")
    assert daemon.tell("set_default_active_thread_percentage 0") == (0, "30.0")
    daemon.says("Invalid percentage, expected between (0.0, 100.0]")
    assert daemon.tell("get_active_thread_percentage 1") == (0, "Server 1 not found")
    assert daemon.tell("terminate_client 1 2")[1].startswith("Server 1 not found")


def test_without_a_gpu_the_server_ends_and_the_daemon_lives(daemon: Daemon) -> None:
    daemon.run("-d")
    assert daemon.tell(f"start_server -uid {os.getuid()}")[0] == 0
    daemon.says("exited with status 1")
    assert "no CUDA-capable device is detected" in (daemon.log / "server.log").read_text()
    assert daemon.tell("get_server_list") == (0, "")


def test_the_doctor_sees_a_living_daemon_and_no_dead_one(daemon: Daemon, tmp_path: Path) -> None:
    assert daemon.pipe not in mps_daemons()
    daemon.run("-d")
    assert daemon.pipe in mps_daemons()
    daemon.tell("quit")
    _until(lambda: not processes_of(tmp_path))
    assert daemon.pipe not in mps_daemons()


@pytest.fixture
def bench(nvidia: RealTools, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A box with the real daemon, and a driver that finds no GPU; whatever a test leaves fails it."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        made = Bench(Path(folder))
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setitem(sys.modules, "pynvml", made.nvml)  # type: ignore[arg-type]
        (made.folder / "bin").mkdir()
        (made.folder / "lib").symlink_to(nvidia.generation.driver)
        (made.folder / "bin" / PROGRAM).symlink_to(nvidia.generation.mps_control)
        yield made
        left = made.left()
        for process in made.processes():
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        assert left == []


@pytest.fixture
def driven(bench: Bench) -> Iterator[MpsDaemon]:
    """The agent's private daemon, not yet started."""
    folders = MpsFolders(bench.base)
    for folder in (folders.root, folders.pipe, folders.log):
        folder.mkdir()
    environment = {"PATH": bench.gpu.path, "LC_ALL": "C", **folders.variables}
    made = MpsDaemon(str(bench.folder / "bin" / PROGRAM), environment, folders)
    yield made
    made.stop()
    end_daemon(bench.base, "nothing")


def test_the_agents_daemon_starts_takes_a_share_and_quits(driven: MpsDaemon, bench: Bench) -> None:
    driven.start(threading.Event())
    assert driven.folders.pipe in mps_daemons()
    shares = (50.0, 33.33, 12.5, 0.5, 100.0)
    assert [driven.control.set_share(share) for share in shares] == [50.0, 33.3, 12.5, 0.5, 100.0]
    assert driven.control.set_share(300.0) == 100.0
    assert "Invalid percentage" in driven.folders.output.read_text()
    assert (driven.control.clients(), driven.control.terminate_clients()) == ([], [])
    with pytest.raises(MpsError, match='Unknown command "bogus"'):
        driven.control.tell("bogus")
    assert driven.clients_seen() == 0
    assert driven.stop() == "quit"
    assert not driven.alive
    with pytest.raises(MpsError, match="Cannot find MPS control daemon process"):
        driven.control.tell("get_server_list")
    assert driven.folders.pipe not in mps_daemons()


def test_a_daemon_that_was_killed_is_seen_and_its_folder_is_used_again(driven: MpsDaemon) -> None:
    driven.start(threading.Event())
    (process,) = [
        process
        for process, command in running_commands()
        if command.startswith(os.fsencode(driven._program) + b"\0-f")
    ]
    os.kill(process, signal.SIGKILL)
    _until(lambda: not driven.alive)
    again = MpsDaemon(driven._program, driven._environment, driven.folders)
    again.start(threading.Event())
    assert again.control.set_share(50.0) == 50.0
    assert again.stop() == "quit"


def test_without_a_gpu_a_share_is_set_but_not_probed_and_there_is_no_run(bench: Bench) -> None:
    """The driver's own library attaches to the daemon by itself, which starts a server that finds no GPU."""
    with pytest.raises(ProfilerError) as caught:
        bench.measure(bench.work(condition=HALF_AT_BASE))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE
    assert "the probe of the SMs failed: cuInit: 805 (MPS connection failed)" in caught.value.cause
    assert "Failed to start : no CUDA-capable device is detected" in caught.value.cause


def test_daemons_before_cuda_13_make_no_partitions(bench: Bench) -> None:
    """They take -v and -S for questions to a daemon; and know no partitions where one is asked."""
    program = bench.folder / "bin" / PROGRAM
    release, said = control_release(str(program), bench.folder, {})
    assert (release, said) == (0, "Cannot find MPS control daemon process")
    bench.capability = "9.0"
    with pytest.raises(
        ProfilerError, match="cannot make static partitions: it is older than CUDA 13"
    ) as caught:
        bench.measure(bench.work(condition=replace(HALF_AT_BASE, sm_share="partition")))
    assert caught.value.failure_class is FailureClass.MPS_NOT_IN_FORCE


def test_a_daemon_without_partitions_says_so(driven: MpsDaemon) -> None:
    driven.start(threading.Event())
    with pytest.raises(MpsError, match="sm_partition"):
        add_partition(driven.control, "GPU-1", 4)


def test_the_daemon_logs_its_clients_and_a_run_without_mps_is_none(
    driven: MpsDaemon, bench: Bench, nvidia: RealTools
) -> None:
    driven.start(threading.Event())
    library = {"LD_LIBRARY_PATH": str(nvidia.generation.driver), "PATH": os.defpath}
    with bench.measurement(bench.work()) as measurement:
        nobody = measurement.log.environment["CUDA_MPS_PIPE_DIRECTORY"]
        kept_away = {**library, "CUDA_MPS_PIPE_DIRECTORY": nobody}
        with pytest.raises(ProbeError, match="cuInit: 100"):
            probe_sms(kept_away, bench.folder, "GPU-1", measurement.space.lock)
        assert driven.clients_seen() == 0
        with pytest.raises(ProbeError, match="cuInit: 805"):
            probe_sms({**library, **driven.folders.variables}, bench.folder, "GPU-1", measurement.space.lock)
        assert driven.clients_seen() == 1


@pytest.fixture(scope="module")
def killed() -> Iterator[Killed]:
    made = Killed()
    yield made
    made.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, 9))
def test_an_agent_killed_at_any_step_leaves_no_real_daemon_after_the_next_start(
    bench: Bench, killed: Killed, step: int, when: str
) -> None:
    killed.start(bench.folder, step, when)
    assert killed.ended() == -signal.SIGKILL
    undo_leftovers(bench.state)
    assert bench.left() == []
