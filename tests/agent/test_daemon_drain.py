"""Stopping an agent whose profiler does not want to end: bounded, handed back, nothing left behind."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.agent.agent_processes import agent_process
from tests.support.agent.fake_server import FakeServer, wait_for
from tests.support.agent.nvidia_tools import processes_of
from tests.support.agent.tool_bench import WORKLOAD
from tests.support.agent.virtual_runs import add

pytestmark = pytest.mark.processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    return tmp_path


def hangs(folder: Path) -> bool:
    """Whether the profiler ignores SIGTERM by now; its supervisor, which does so too, is not meant."""
    for process, command in processes_of(folder).items():
        if "supervisor.py" in command or "nsys" not in command:
            continue
        try:
            ignored = re.search(
                r"^SigIgn:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE
            )
        except OSError:
            continue
        if ignored and int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1:
            return True
    return False


def test_a_second_signal_hands_a_stubborn_run_back_at_once(
    server: FakeServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The profiler dies of SIGKILL only, and 10 minutes of draining were asked for."""
    state = folder / "state"
    monkeypatch.setenv("TMPDIR", str(folder))  # the tools' HOME is made there
    add(server, "c-1.0000", folder, "light", "hang:stubborn")
    with agent_process(
        server, state, "--virtual", "V100", "--recorded-slots", "0", "--drain", "10m"
    ) as agent:
        wait_for(lambda: hangs(folder))
        agent.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert agent.poll() is None, "it drains"
        beats = len(server.heartbeats)
        wait_for(lambda: len(server.heartbeats) > beats), "draining keeps the lease"
        agent.send_signal(signal.SIGINT)
        assert agent.wait(90) == 0
        (failed,) = server.failures
        assert (failed.failure.failure_class, failed.failure.retryable) == ("agent_restarted", True)
        assert failed.failure.cause == "the agent was told to stop, and the profiler was slow to end"
        wait_for(lambda: not processes_of(folder)), "its supervisor ends what the agent left"
