"""The process that has loaded Assay's programs, and becomes one of them in each of its forks."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import re
import resource
import runpy
import select
import signal
import socket
import sys
import time
import types
from multiprocessing import spawn
from pathlib import Path
from typing import Any

from assay_core.loading import loading
from tests.support.fork_server.asking import ForkServer, listening, new_name
from tests.support.fork_server.starting import by_forks_of

# What most programs and the workers of an analysis load.
_LOADED = (
    "alembic.command", "alembic.script", "assay_agent.cli.join", "assay_agent.cli.policy",
    "assay_agent.cli.running", "assay_client.cli.main", "assay_client.cli.verbs.judge.inspect",
    "assay_client.cli.verbs.judge.select", "assay_client.cli.verbs.measure.run", "assay_client.local",
    "assay_report.data", "assay_report.html", "assay_sampling.methods.baselines.systematic",
    "assay_sampling.methods.pks.sampler", "assay_sampling.methods.stem.sampler",
    "assay_server.analysis.pipeline", "assay_server.app", "assay_server.campaign_file.lint",
    "assay_server.cli.program", "assay_virtual.model.gpu", "jinja2", "pandas", "psutil",
    "scipy.sparse", "yaml",
)  # fmt: skip
_ABOVE_ALL = 512
_STARTING = {"run", "demo"}
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def live(listener: socket.socket, *, until_input_ends: bool) -> None:
    """Serve, and in a fork be the program.

    One that starts programs has a process that forks for it, its child: what does not descend from a process
    cannot become its child.
    """
    while (request := _served(listener, until_input_ends=until_input_ends)) is not None:
        argv = request["argv"]
        if not _starts_others(argv):
            become(argv)
            return
        name = new_name()
        listener = listening(name)
        if os.fork():
            listener.close()
            by_forks_of(ForkServer(name))
            become(argv)
            return
        _serve_only_its_parent()
        until_input_ends = False


def _starts_others(argv: list[str]) -> bool:
    """Whether this is a server, or a verb of ``assay`` that starts servers, agents or workers."""
    program, first = Path(argv[0]).name, "".join(argv[1:2])
    return (program == "assay-server" and first.startswith("-")) or (
        program == "assay" and first in _STARTING
    )


def _serve_only_its_parent() -> None:
    """End with it, and show and hear nothing that is for it."""
    _end_with_parent()
    _show([sys.executable, "-m", "tests.support.fork_server.forking"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def _served(listener: socket.socket, *, until_input_ends: bool) -> dict[str, Any] | None:
    """Fork for whoever asks, until standard input ends: None. In a fork: what it is to become."""
    while True:
        ready, _, _ = select.select([listener, *([0] if until_input_ends else [])], [], [])
        if listener not in ready:
            return None
        connection, _ = listener.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 64)
        request: dict[str, Any] | None = json.loads(data) if data else None
        if request and _is_fork(connection):
            # All descriptors are closed by their numbers; these objects must not close them again, later.
            connection.detach()
            listener.detach()
            _take_over(request, descriptors)
            return request
        connection.close()
        for descriptor in descriptors:
            os.close(descriptor)


def _is_fork(connection: socket.socket) -> bool:
    """Fork. True in the fork, once it belongs to the process that asked, and if that wants it still."""
    reading, writing = os.pipe()
    between = os.fork()
    if between:
        os.waitpid(between, 0)  # now the fork is an orphan, and a child of who asked
        with contextlib.suppress(OSError):
            connection.send(os.read(reading, 32))
        os.close(reading)
        os.close(writing)
        return False
    child = os.fork()
    if child:
        os.write(writing, str(child).encode())
        os._exit(0)
    if connection.recv(8) != b"go":
        os._exit(1)
    return True


def _take_over(request: dict[str, Any], descriptors: list[int]) -> None:
    """All that a new process has from its parent and the kernel."""
    if request["new_session"]:
        os.setsid()
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, _ABOVE_ALL) for each in descriptors]
    os.closerange(0, _ABOVE_ALL)
    for each, number in zip(high, request["descriptors"], strict=True):
        os.dup2(each, number)
        os.close(each)
    for kind, limits in request["limits"]:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, limits)
    os.umask(request["umask"])
    os.chdir(request["folder"])
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if request["ignored"] >> (number - 1) & 1 else default)
    if request["bound_to"]:
        _end_with_parent()
        if os.getppid() != request["bound_to"]:
            os._exit(1)
    _show(request["argv"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    _open_streams()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _show(argv: list[str]) -> None:
    """Have the kernel show the command line of the program, within the room that this process began with."""
    shown = argv if argv[0] == sys.executable else [sys.executable, *argv]
    ctypes.CDLL(None).prctl(_PR_SET_NAME, os.fsencode(Path(argv[0]).name), 0, 0, 0)
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])
    words = b"".join(os.fsencode(word) + b"\0" for word in shown)[: end - begin - 1]
    ctypes.memmove(begin, words.ljust(end - begin, b"\0"), end - begin)


def _open_streams() -> None:
    """Standard streams as Python opens them, by what is behind them now."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        before = getattr(sys, f"__{name}__")
        stream: Any = os.fdopen(number, mode, encoding=before.encoding, errors=before.errors, closefd=False)
        stream.reconfigure(line_buffering=stream.isatty() or unbuffered or name == "stderr")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def become(argv: list[str]) -> None:
    """Run the program: a worker of multiprocessing, a module, or a script."""
    if "--multiprocessing-fork" in argv:
        sys.argv, sys.path[0] = ["-c", "--multiprocessing-fork"], ""
        pipes = re.findall(r"(tracker_fd|pipe_handle)=(\d+)", " ".join(argv))
        spawn.spawn_main(**{name: int(number) for name, number in pipes})
    elif argv[1:2] == ["-m"]:
        sys.argv, sys.path[0] = argv[2:], str(Path.cwd())
        sys.modules.pop(argv[2], None)
        runpy.run_module(argv[2], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = list(argv), str(Path(argv[0]).parent)
        main = types.ModuleType("__main__")
        main.__file__ = argv[0]
        sys.modules["__main__"] = main
        exec(compile(Path(argv[0]).read_bytes(), argv[0], "exec"), main.__dict__)


if __name__ == "__main__":
    with loading():
        for module in _LOADED:
            importlib.import_module(module)
    live(socket.socket(fileno=int(sys.argv[1])), until_input_ends=True)
