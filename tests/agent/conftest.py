"""Fixtures of the agent's tests."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent.fake_server import FakeServer
from tests.support.agent.nvidia_tools import RealTools, parameters, processes_of


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A running fake server on a Unix socket, in a directory with a short name."""
    with tempfile.TemporaryDirectory(prefix="assay-") as directory:
        made = FakeServer(Path(directory))
        made.start()
        yield made
        made.hold_acks.set()
        made.stop()


@pytest.fixture(params=parameters())
def nvidia(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealTools]:
    """NVIDIA's own tools, every generation in turn; a process that they leave behind fails the test."""
    yield RealTools(request.param, tmp_path)
    until = time.monotonic() + 5
    while (left := processes_of(tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert left == {}
