"""Fixtures of the client's tests: the command line in this process and as a process, and a fake server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay_client.cli.main import main
from tests.support.client.scripted_server import FakeServer, Script

PROGRAM = Path(sys.executable).with_name("assay")


@dataclass(frozen=True)
class Ended:
    """A command line that has ended."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as on a wide terminal, however the tests are started."""
    monkeypatch.setenv("COLUMNS", "140")


@pytest.fixture(autouse=True)
def logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder for logins, instead of this user's own."""
    folder = tmp_path / "logins"
    monkeypatch.setenv("ASSAY_CREDENTIALS", str(folder))
    return folder


@pytest.fixture
def assay(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Run a command line in this process."""

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        code = main([str(a) for a in arguments])
        captured = capfd.readouterr()
        return Ended(code, captured.out, captured.err)

    return run


@pytest.fixture
def assay_process() -> Callable[..., Ended]:
    """Run a command line as a user's shell would."""

    def run(*arguments: object, env: dict[str, str] | None = None, cwd: Path | None = None) -> Ended:
        ended = subprocess.run(
            [PROGRAM, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return run


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def server(script: Script) -> Iterator[FakeServer]:
    fake = FakeServer(script)
    yield fake
    fake.stop()
