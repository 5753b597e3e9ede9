"""Has :mod:`subprocess` and :mod:`multiprocessing` start programs by a fork, in tests and their programs."""

from __future__ import annotations

import inspect
import multiprocessing.util
import os
import subprocess
from typing import Any

from tests.support.fork_server.asking import ForkServer, start_of

_execute_child = subprocess.Popen._execute_child  # type: ignore[attr-defined]
_spawnv_passfds = multiprocessing.util.spawnv_passfds  # type: ignore[attr-defined]
_ASKED = tuple(inspect.signature(_execute_child).parameters)[1:]
# What a fork can give: anything else for these needs a program that starts as usual.
_GIVEN = {
    "executable": None, "preexec_fn": None, "gid": None, "gids": None, "uid": None, "shell": False,
    "pass_fds": (), "close_fds": True, "restore_signals": True, "umask": -1, "process_group": -1,
}  # fmt: skip
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


def by_forks_of(server: ForkServer) -> None:
    """From here on programs start as forks of that process, where they can."""

    def forked_or_executed(popen: Any, *values: Any) -> None:
        """Instead of :meth:`subprocess.Popen._execute_child`."""
        asked = dict(zip(_ASKED, values, strict=True))
        environment = os.environ if asked["env"] is None else asked["env"]
        start = start_of(asked["args"], asked["cwd"], environment, new_session=asked["start_new_session"])
        plain = all(asked[name] == value for name, value in _GIVEN.items())
        if start is None or not plain or not server.can_begin(start):
            _execute_child(popen, *values)
            return
        own = (asked["p2cread"], asked["c2pwrite"], asked["errwrite"])
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(own)]
        try:
            popen.pid = server.begin(start, streams)
        except OSError:  # a signal to the whole group ended it, or its message is too long
            _execute_child(popen, *values)
            return
        popen._child_created = True
        popen._close_pipe_fds(*(asked[name] for name in _PIPES))

    subprocess.Popen._execute_child = forked_or_executed  # type: ignore[attr-defined]
    multiprocessing.util.spawnv_passfds = server.worker  # type: ignore[attr-defined]


def as_usual() -> None:
    """From here on programs start as without this module."""
    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]
    multiprocessing.util.spawnv_passfds = _spawnv_passfds  # type: ignore[attr-defined]
