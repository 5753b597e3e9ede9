"""Runs a tool: in its own session, without input, in a given environment, within a time limit.

:mod:`assay_core.processes.supervisor` runs between us and the tool and ends the tool's whole tree: in order
(INT, TERM, KILL) when the time is over or the run is cancelled, and by itself when we die. The
beginning and the end of the tool's output are kept. Nothing here judges the exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from assay_core.processes import supervisor

_LOOK_SECONDS = 0.05
_KEPT_BYTES = 64 << 10
_READ_BYTES = 1 << 16


class Cancellation(Protocol):
    """Says whether a tool is to end, such as an event; once it says so it never says otherwise. It is asked
    about twenty times a second, in the thread that runs the tool."""

    def is_set(self) -> bool: ...


@dataclass(frozen=True)
class EndingSteps:
    """How long a tool may take to end after SIGINT, then after SIGTERM, before it is killed, in seconds."""

    interrupt_seconds: float = 10.0
    terminate_seconds: float = 5.0


@dataclass(frozen=True)
class ToolResult:
    """How a tool ended. ``exit_code`` is None if a signal (or an unknown cause) ended it.

    ``problem`` is set if it could not be started; ``stdout`` and ``stderr`` hold at most 128 KiB each.
    ``left``: processes of its tree that outlived it, and were then ended. ``cpu_seconds`` are those of the
    whole tree, ``peak_memory_bytes`` the most that one process of it held; None if nobody saw it end.
    """

    argv: tuple[str, ...]
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool = False
    cancelled: bool = False
    problem: str = ""
    left: tuple[int, ...] = ()
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.problem:
            return self.problem
        if self.timed_out or self.cancelled:
            why = "its time was over" if self.timed_out else "the run was cancelled"
            return f"ended after {self.seconds:.1f} s because {why}"
        if self.signal is not None:
            return f"ended by signal {self.signal}"
        return "ended in an unknown way" if self.exit_code is None else f"exit status {self.exit_code}"


def run_tool(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: Path,
    timeout_seconds: float,
    cancelled: Cancellation | None = None,
    stdout_path: Path | None = None,
    held: Sequence[int] = (),
    ending: EndingSteps = EndingSteps(),
    before_ending: Callable[[], None] | None = None,
) -> ToolResult:
    """Run ``argv`` to its end.

    Args:
        argv: program and arguments; the program is looked up in the PATH of ``environment``.
        environment: all of it; nothing is inherited.
        directory: where it runs.
        timeout_seconds: when it is ended.
        cancelled: ends it as soon as it is set.
        stdout_path: its standard output goes there instead of into the result.
        held: descriptors (of locks) that stay open until the last process of the tool has ended, even if
            we die before.
        ending: patience while it is ended.
        before_ending: called once, before the first signal, if it does not end by itself. Must not raise.

    Raises OSError if the supervisor cannot be started or ``stdout_path`` cannot be written.
    """
    began = time.monotonic()
    status_read, status_write = os.pipe()
    with contextlib.ExitStack() as stack:
        status = stack.enter_context(os.fdopen(status_read, "rb", buffering=0))
        output = stack.enter_context(stdout_path.open("wb")) if stdout_path else subprocess.PIPE
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, str(status_write), *argv],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
                env=dict(environment),
                cwd=directory,
                start_new_session=True,
                pass_fds=(status_write, *held),
                # An order that nobody reads any more must not wait in a buffer and fail at the close.
                bufsize=0,
            )
        finally:
            os.close(status_write)
        stack.enter_context(process)
        run = _Run(process, status, ending, began + timeout_seconds, cancelled, before_ending=before_ending)
        run.follow()  # if this raises, the pipe is closed, and the supervisor ends the tree
    return run.result(tuple(argv), time.monotonic() - began)


class _Run:
    """One tool while it runs."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        status: object,
        ending: EndingSteps,
        deadline: float,
        cancelled: Cancellation | None,
        *,
        before_ending: Callable[[], None] | None,
    ) -> None:
        self._process, self._ending, self._deadline = process, ending, deadline
        self._before_ending = before_ending or (lambda: None)
        self._cancelled: Cancellation = cancelled or threading.Event()
        self._status, self._stdout, self._stderr = _Excerpt(), _Excerpt(), _Excerpt()
        self._selector = selectors.DefaultSelector()
        self._selector.register(status, selectors.EVENT_READ, self._status)  # type: ignore[arg-type]
        for channel, excerpt in ((process.stdout, self._stdout), (process.stderr, self._stderr)):
            if channel is not None:
                self._selector.register(channel, selectors.EVENT_READ, excerpt)
        self._timed_out = self._was_cancelled = False

    def follow(self) -> None:
        """Read until every channel has ended, sending the orders that are due."""
        orders = self._orders()
        with self._selector:
            while self._selector.get_map():
                for key, _ in self._selector.select(_LOOK_SECONDS):
                    data = os.read(key.fd, _READ_BYTES)
                    if data:
                        key.data.add(data)
                    else:
                        self._selector.unregister(key.fileobj)
                next(orders)
        self._process.wait()

    def _orders(self) -> Iterator[None]:
        while time.monotonic() < self._deadline and not self._cancelled.is_set():
            yield
        self._was_cancelled = self._cancelled.is_set()
        self._timed_out = not self._was_cancelled
        self._before_ending()
        for order, patience in (
            (b"I", self._ending.interrupt_seconds),
            (b"T", self._ending.terminate_seconds),
        ):
            self._order(order)
            until = time.monotonic() + patience
            while time.monotonic() < until:
                yield
        self._order(b"K")
        while True:
            yield

    def _order(self, order: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(order)
            self._process.stdin.flush()

    def result(self, argv: tuple[str, ...], seconds: float) -> ToolResult:
        try:
            status = json.loads(self._status.text())
        except ValueError:
            status = {}
        return ToolResult(
            argv=argv,
            exit_code=status.get("exit"),
            signal=status.get("signal"),
            stdout=self._stdout.text(),
            stderr=self._stderr.text(),
            seconds=seconds,
            timed_out=self._timed_out,
            cancelled=self._was_cancelled,
            problem=status.get("error", ""),
            left=tuple(status.get("left", ())),
            cpu_seconds=status.get("cpu_seconds"),
            peak_memory_bytes=status.get("peak_memory_bytes"),
        )


class _Excerpt:
    """The beginning and the end of a channel's output."""

    def __init__(self) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._left_out = 0

    def add(self, data: bytes) -> None:
        room = _KEPT_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        surplus = len(self._tail) - _KEPT_BYTES
        if surplus > 0:
            del self._tail[:surplus]
            self._left_out += surplus

    def text(self) -> str:
        middle = f"\n... {self._left_out:,} bytes left out ...\n".encode() if self._left_out else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode(errors="replace")
