"""NVIDIA's own MPS control daemon without a GPU: what it does, so that what drives it can rest on that.

The daemon, its pipe and its log are private to a test; no other daemon of the machine is touched.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nvidia_tools import RealTools

from assay_agent import doctor_box

pytestmark = pytest.mark.processes

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


def test_a_daemon_can_be_started_again_in_the_same_folder(daemon: Daemon) -> None:
    for _ in range(2):
        assert daemon.run("-d") == (0, "")
        assert daemon.tell("quit") == (0, "")
        _until(lambda: daemon.tell("get_server_list")[0] == 1)


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


def test_the_doctor_sees_a_living_daemon_and_no_dead_one(daemon: Daemon) -> None:
    assert daemon.pipe not in doctor_box.mps_daemons()
    daemon.run("-d")
    assert daemon.pipe in doctor_box.mps_daemons()
    daemon.tell("quit")
    _until(lambda: daemon.tell("get_server_list")[0] == 1)
    assert daemon.pipe not in doctor_box.mps_daemons()
