"""A signal asks for an orderly end; a later one does not wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.processes

# Stands for a server whose end takes long.
SLOW_END = """\
import time
from assay_server.signals import until_asked_to_end
with until_asked_to_end() as ending:
    print("ready", flush=True)
    ending.wait()
    print("asked", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def slow() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", SLOW_END], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_later_signal_ends_at_once(slow: subprocess.Popen[str], number: signal.Signals) -> None:
    assert slow.stdout is not None
    slow.send_signal(number)
    assert slow.stdout.readline() == "asked\n"
    slow.send_signal(number)  # the same request, told twice
    time.sleep(1.2)  # the second that counts as one request
    assert slow.poll() is None
    slow.send_signal(number)
    assert slow.wait(90) == -number
