"""Runs command lines and keeps what they gave: exit code, the JSON of both streams, the files they wrote."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from assay_client.cli.main import main

INPUTS = Path(__file__).parent / "inputs"
_BIN = Path(sys.executable).parent
_SECONDS = 120.0
# What virtual GPUs measure hangs on their identity, and that on their agent's.
AGENT = "5e2b90c45e2b90c45e2b90c45e2b90c4"


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """``folder`` with a copy of the inputs as the working directory, and an environment of its own."""
    shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ASSAY_", "XDG_"))}
    before, here = dict(os.environ), Path.cwd()
    os.environ.clear()
    os.environ.update(kept, HOME=str(folder / "home"), COLUMNS="120", TZ="UTC")
    os.chdir(folder)
    try:
        yield folder
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


def in_process(arguments: Sequence[str], files: Sequence[str] = ()) -> dict[str, Any]:
    """``assay`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    return _kept(["assay", *arguments], code, (out.getvalue(), err.getvalue()), files)


def as_process(program: str, arguments: Sequence[str], files: Sequence[str] = ()) -> dict[str, Any]:
    """One of the three programs as a process of its own."""
    ended = subprocess.run(
        [_BIN / program, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    return _kept([program, *arguments], ended.returncode, (ended.stdout, ended.stderr), files)


@contextlib.contextmanager
def server(state: Path, address: str) -> Iterator[None]:
    """An ``assay-server`` process on ``state`` at ``address``."""
    command = [_BIN / "assay-server", "--state", state, "--listen", address]
    with (state.parent / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _SECONDS
        while not Path(address.removeprefix("unix:")).exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((state.parent / "server.log").read_text())
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(_SECONDS)


@contextlib.contextmanager
def agent(state: Path, *options: str) -> Iterator[None]:
    """An ``assay-agent run`` process for the server of the environment."""
    command = [_BIN / "assay-agent", "run", "--state", state, "--name", "box", "--agent-id", AGENT, *options]
    with Path("agent.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(_SECONDS)


def _kept(command: list[str], code: int, streams: tuple[str, str], files: Sequence[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {
        "command": command,
        "exit_code": code,
        "stdout": _document(streams[0]),
        "stderr": _document(streams[1]),
    }
    if files:
        kept["files"] = {name: _file(Path(name)) for name in files}
    return kept


def _document(text: str) -> Any:
    """The JSON that ``text`` is, or its lines."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return {"lines": text.splitlines()}


def _file(path: Path) -> Any:
    if path.is_symlink():
        return {"link_to": str(path.readlink())}
    if not path.exists():
        return "missing"
    data = path.read_bytes()
    return _document((gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode())
