"""A server and an agent as processes of their own, started and stopped in order: what the demo shows."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_client.places import private_socket_address
from assay_sampling.errors import AssayError, StorageError

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LISTENING = "listening on"


@dataclass(frozen=True)
class Service:
    """A server process and an agent process that work for it."""

    address: str
    server: subprocess.Popen[bytes]
    agent: subprocess.Popen[bytes]


@contextlib.contextmanager
def running_service(state: Path, logs: Path) -> Iterator[Service]:
    """Start ``assay-server`` and ``assay-agent`` on a private Unix socket; stop them in order at the end.

    Args:
        state: "server" and "agent" in it keep their state.
        logs: server.log and agent.log are written here.

    Raises AssayError with the end of its log where a program does not come up.
    """
    try:
        for directory in (state, logs):
            directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            str(error.filename), f"it cannot be made ({error.strerror})", "name another folder"
        ) from error
    with private_socket_address() as address:
        server_command = [_program("assay-server"), "--listen", address, "--state", str(state / "server")]
        agent_command = [
            _program("assay-agent"), "run", "--server", address, "--state", str(state / "agent"),
        ]  # fmt: skip
        with _process(server_command, logs / "server.log") as server:
            _await_line(server, "assay-server", logs / "server.log")
            with _process(agent_command, logs / "agent.log") as agent:
                yield Service(address, server, agent)


def _program(name: str) -> str:
    """The program of this installation, before one of the same name elsewhere on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise AssayError(
            name, "the program is not installed", "install it with: pip install 'assay-gpu[all]'"
        )
    return found


@contextlib.contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    # A session of its own: Ctrl-C on the terminal reaches this process alone, which then stops the others.
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_line(process: subprocess.Popen[bytes], name: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll()
        text = log.read_text(errors="replace")
        if _LISTENING in text:
            return
        if ended is not None:
            last = " ".join(text.split()[-80:]) or "it printed nothing"
            kind = StorageError if ended == StorageError.exit_code else AssayError
            raise kind(name, f"it ended at once with exit code {ended}: {last}", f"see {log}")
        time.sleep(0.02)
    raise AssayError(name, f"it did not come up within {_START_SECONDS:g} s", f"see {log}")
