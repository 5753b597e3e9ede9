"""The agent as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay_core.files.launch_file import new_launch_file
from tests.support.agent.fake_server import FakeServer, batches_of

AGENT = (sys.executable, "-m", "assay_agent.main")


@contextmanager
def agent_process(server: FakeServer, state: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        *AGENT,
        "run",
        "--server",
        server.address,
        "--state",
        str(state),
        "--minimum-free",
        "0",
        *options,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def write_recording(path: Path, launches: int, seed: int) -> Path:
    batches = batches_of(launches, 65_536, seed=seed)
    with new_launch_file(path, batches[0].records.schema) as writer:
        for batch in batches:
            writer.write(batch)
    return path


def run_agent(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*AGENT, *arguments], capture_output=True, text=True, timeout=60, check=False)
