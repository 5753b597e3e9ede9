"""The process between a program of ours and a tool: it ends the tool's whole tree even if the program dies.

Started by :mod:`assay_core.processes.tool_run` as a script, with the standard library only:

    python -I -S supervisor.py STATUS_FD PROGRAM [ARGUMENT ...]

Its standard input is a pipe from the program, one byte per command: ``I`` sends SIGINT to the tool's group,
``T`` SIGTERM to every process of the tree, ``K`` kills the tree. The end of the pipe means that the program
is gone: the tree gets SIGTERM, and two seconds later SIGKILL. The supervisor is the subreaper of the tree, so
it still finds processes that leave the tool's group or lose their parent. How the tool ended goes to
STATUS_FD as a line of JSON: ``{"exit": 0}``, ``{"signal": 9}`` or ``{"error": "..."}``; the first two also
hold ``"left"``, the processes of the tree that outlived the tool, ``"cpu_seconds"`` of the whole tree, and
``"peak_memory_bytes"``, the most that one process of it held.

It reads /proc itself: psutil is in the site packages, which ``-S`` leaves out, and importing it would take
longer than many tools take to start.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_SECONDS = 0.05
_LEFTOVER_SECONDS = 2.0
_ORPHAN_SECONDS = 2.0
# The program may read the pipe only after we have ended.
_MOST_LEFT = 1000


def main(arguments: list[str]) -> int:
    """Run the tool and report how it ended; returns the exit status of this process."""
    status, command = int(arguments[0]), arguments[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # orders come by the pipe
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def bound_to_us() -> None:
        library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    try:
        tool = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=bound_to_us,  # noqa: PLW1509 - there is one thread
        )
    except OSError as error:
        _tell(status, {"error": f"{command[0]!r} cannot be run: {error.strerror}"})
        return 1
    for descriptor in (1, 2):
        os.close(descriptor)  # the program waits for the end of the tool's output, not ours
    _watch(tool)
    left = _descendants()
    _end_leftovers()
    code = tool.returncode
    ended = {"signal": -code} if code < 0 else {"exit": code}
    _tell(status, {**ended, "left": left[:_MOST_LEFT], **_usage()})
    return 0


def _usage() -> dict[str, object]:
    """What the processes of the tree have used that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"cpu_seconds": used.ru_utime + used.ru_stime, "peak_memory_bytes": used.ru_maxrss << 10}


def _watch(tool: subprocess.Popen[bytes]) -> None:
    """Follow the program's orders until the tool has ended."""
    orders, killing, kill_at = True, False, float("inf")
    while tool.poll() is None:
        if time.monotonic() >= kill_at:
            killing = True
        if killing:
            _signal_tree(signal.SIGKILL)
        if not orders:
            time.sleep(_LOOK_SECONDS)
            continue
        if not select.select([0], [], [], _LOOK_SECONDS)[0]:
            continue
        order = os.read(0, 1)
        if order == b"I":
            with contextlib.suppress(OSError):
                os.killpg(tool.pid, signal.SIGINT)
        elif order == b"T":
            _signal_tree(signal.SIGTERM)
        elif order == b"K":
            killing = True
        elif not order:
            orders, kill_at = False, time.monotonic() + _ORPHAN_SECONDS
            _signal_tree(signal.SIGTERM)


def _end_leftovers() -> None:
    """End what the tool left behind: ask first, kill after a while, until nothing is left."""
    asked_at = time.monotonic()
    while _reap() and _descendants():
        late = time.monotonic() - asked_at > _LEFTOVER_SECONDS
        _signal_tree(signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(_LOOK_SECONDS)


def _reap() -> bool:
    """Collect children that have ended; False where there is no child left at all."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _signal_tree(number: int) -> None:
    for process in _descendants():
        with contextlib.suppress(OSError):
            os.kill(process, number)


def _descendants() -> list[int]:
    """Process IDs of all living descendants of this process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - started without site packages, and often
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(int(name))
    descendants, waiting = [], [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        descendants += below
        waiting += below
    return descendants


def _tell(status: int, document: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(status, json.dumps(document).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
