"""A server and agents as separate processes that are kept alive, for the demo.

A child that ends by itself or is killed is restarted on the state that it left. All children die
with this process, however it ends, so that the next one finds their states free.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from assay_client.demonstration import bound
from assay_client.ending import raise_if_asked
from assay_client.places import private_socket_address, remove_socket_folder
from assay_core.files.private_folders import private_opener, take_state_folder
from assay_sampling.errors import AssayError, StorageError
from assay_sampling.installation import install_command

_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.1
# A child that ends so soon after its start, this often in a row, cannot run.
_SHORT_LIFE_SECONDS = 60.0
_MOST_SHORT_LIVES = 3
_LISTENING = "listening on"

Say = Callable[[str], None]


def silent(text: str) -> None:
    """Say nothing."""


@contextlib.contextmanager
def running_service(
    state: Path,
    logs: Path,
    gpus: Sequence[str] = (),
    *,
    say: Say = silent,
    analysis_workers: int = 1,
    web: str | None = None,
) -> Iterator[Service]:
    """Start ``assay-server`` and an ``assay-agent`` for each virtual GPU; stop them in order at the end.

    Args:
        state: "server" and "agent-KIND" in it keep their states.
        logs: the folder for server.log and agent-KIND.log.
        gpus: kinds of virtual GPUs, one agent each.
        say: gets a message when a child is restarted; called from another thread.
        analysis_workers: how many processes the server uses for analyses.
        web: serve the live page there, too (HOST:PORT; port 0: a free one).

    Raises AssayError with the end of its log if a program does not come up.
    """
    try:
        for directory in (state, logs):
            take_state_folder(directory)
    except OSError as error:
        raise StorageError(
            str(error.filename), f"it cannot be made ({error.strerror})", "name another folder"
        ) from error
    remove_socket_folder(state / "server" / "address")
    with private_socket_address() as address:
        server = _Child(
            "assay-server",
            ["--listen", address, "--state", str(state / "server"),
             "--analysis-workers", str(analysis_workers), *(() if web is None else ("--web", web))],
            logs / "server.log",
            awaited=_LISTENING,
        )  # fmt: skip
        agents = [_agent(gpu, address, state, logs) for gpu in gpus]
        service = Service(address, [server, *agents], say)
        with service:
            yield service


def _agent(gpu: str, address: str, state: Path, logs: Path) -> _Child:
    name = f"agent-{gpu.replace(' ', '-')}"
    # The same identity in every state folder: it is part of the virtual GPU's UUID, which records carry.
    agent_id = hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    arguments = [
        "run", "--server", address, "--state", str(state / name), "--name", name, "--agent-id", agent_id,
        "--recorded-slots", "0", "--virtual", gpu,
    ]  # fmt: skip
    return _Child("assay-agent", arguments, logs / f"{name}.log", name=name)


class Service:
    """Children that a thread keeps alive; use it as a context manager.

    ``address`` is the server's. Children are started in order and stopped in reverse.
    """

    def __init__(self, address: str, children: Sequence[_Child], say: Say) -> None:
        self.address = address
        self._children = children
        self._say = say
        self._stopping, self._ready = threading.Event(), threading.Event()
        self._problem: AssayError | None = None
        # The kernel kills children with the thread that started them, so one thread starts and outlives all.
        self._keeper = threading.Thread(target=self._keep, name="assay-keeper", daemon=True)

    def __enter__(self) -> Service:
        self._keeper.start()
        try:
            while not self._ready.wait(_LOOK_SECONDS):
                raise_if_asked()
            self.raise_problem()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._keeper.join()

    def raise_problem(self) -> None:
        """Raise the error of a child that could not be kept alive, if there is one."""
        if self._problem is not None:
            raise self._problem

    @property
    def processes(self) -> dict[str, int]:
        """Process IDs of the children that run, by name."""
        return {
            child.name: child.process.pid
            for child in self._children
            if child.process and child.process.poll() is None
        }

    def _keep(self) -> None:
        try:
            for child in self._children:
                child.start()
                if self._stopping.is_set():
                    return
            self._ready.set()
            while not self._stopping.wait(_LOOK_SECONDS):
                for child in self._children:
                    self._start_again(child)
        except AssayError as problem:
            self._problem = problem
        finally:
            self._ready.set()
            for child in reversed(self._children):
                child.terminate()
            for child in reversed(self._children):
                child.end()

    def _start_again(self, child: _Child) -> None:
        ended = child.ended()
        if ended is not None and not self._stopping.is_set():
            self._say(f"{child.name} {ended}; restarting it")
            child.start_again()


@dataclass
class _Child:
    """A program to start and restart. It prints ``awaited`` once it is up."""

    program: str
    arguments: Sequence[str]
    log: Path
    name: str = ""
    awaited: str = ""
    process: subprocess.Popen[bytes] | None = None
    _began: float = 0.0
    _short_lives: int = 0
    _command: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.name or self.program

    def start(self) -> None:
        """Start it and wait until it is up; raises AssayError if it does not come up."""
        if not self._command:
            launcher = [sys.executable, "-I", "-S", bound.__file__, str(os.getpid())]
            self._command = [*launcher, _program(self.program), *self.arguments]
        with open(self.log, "ab", opener=private_opener) as stream:
            offset = stream.tell()
            # A separate session: Ctrl-C on the terminal reaches only this process, which then stops
            # the others.
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._began = time.monotonic()
        if self.awaited:
            self._await(self.process, offset)

    def ended(self) -> str | None:
        """How it ended, in words; None while it runs."""
        code = self.process.poll() if self.process else None
        if code is None:
            return None
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def start_again(self) -> None:
        """Restart it; raises AssayError if it ended too soon too often."""
        code = self.process.returncode if self.process else 0
        short = code != -signal.SIGKILL and time.monotonic() - self._began < _SHORT_LIFE_SECONDS
        self._short_lives = self._short_lives + 1 if short else 0
        if self._short_lives >= _MOST_SHORT_LIVES:
            raise self._failed(f"it exits soon after every start: {self.ended()}", 0)
        self.start()

    def terminate(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.terminate()

    def end(self) -> None:
        """Wait until it ends after :meth:`terminate`; kill it if that takes long."""
        if self.process is None:
            return
        try:
            self.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _await(self, process: subprocess.Popen[bytes], offset: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            ended = process.poll()
            if self.awaited in self._log_text(offset):
                return
            if ended is not None and ended < 0:
                return  # killed while it started: the keeper restarts it
            if ended is not None:
                raise self._failed(f"it ended at once with exit code {ended}", offset)
            time.sleep(0.02)
        raise AssayError(self.name, f"it did not start within {_START_SECONDS:g} s", f"see {self.log}")

    def _log_text(self, offset: int) -> str:
        with self.log.open("rb") as stream:
            stream.seek(offset)
            return stream.read().decode(errors="replace")

    def _failed(self, what: str, offset: int) -> AssayError:
        last = " ".join(self._log_text(offset).split()[-80:]) or "it printed nothing"
        disk = self.process is not None and self.process.returncode == StorageError.exit_code
        kind = StorageError if disk else AssayError
        return kind(self.name, f"{what}: {last}", f"see {self.log}")


def _program(name: str) -> str:
    """The program of this installation, before one of the same name elsewhere on the path."""
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.is_file() else shutil.which(name)
    if path is None:
        raise AssayError(name, "the program is not installed", f"install it with: {install_command('all')}")
    return path
