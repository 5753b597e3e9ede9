"""A private MPS control daemon: its folders, running it under our supervisor, and its commands.

The daemon runs in the foreground (``-f``) and logs to its standard output. Its control program exits with
status 0 even for unknown commands and refused values: only its text shows the error. Nothing here looks at
the default pipe folder, so we never talk to another user's daemon.

Source: docs/conditions.md, "SM shares"; docs/nvidia-tools.md, "MPS".
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from assay_core.processes.tool_run import EndingSteps, ToolResult, run_tool

PROGRAM = "nvidia-cuda-mps-control"
PIPE_VARIABLE, LOG_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
# sockaddr_un.sun_path, with its final zero byte.
LONGEST_SOCKET_PATH = 107
_LONGEST_SOCKET = "control_privileged"
_ANSWER_SECONDS = 5.0
_START_SECONDS = 20.0
_LOOK_SECONDS = 0.05
_QUIT_SECONDS = 5.0
_FORCE_SECONDS = 5
_ENDING = EndingSteps(interrupt_seconds=1.0, terminate_seconds=2.0)
_TELL = 'printf "%s\\n" "$1" | exec "$0" 2>&1'
_SERVE = 'exec "$0" -f "$@" 2>&1'
_NEW_CLIENT = "NEW CLIENT"
_TROUBLE = re.compile(r"fail|invalid|already running|not found", re.IGNORECASE)
# Neither the program nor the daemon reports the driver's version: it is one of the strings in the
# program's file, as in 535.261.03 and 550.163.01.
_VERSION = re.compile(rb"\0(\d{3}\.\d{2,3}(?:\.\d{2})?)\0")
_MOST_PROGRAM_BYTES = 16 << 20
# Programs of CUDA 13 print their version; older ones take the option for a command to a daemon.
_RELEASE = re.compile(r"Binary version:\s*(\d+)")


class MpsError(Exception):
    """The daemon did not obey; the text says what happened."""


@dataclass(frozen=True)
class MpsFolders:
    """The private folders of a daemon below ``base``, a folder with a short path."""

    base: Path

    @property
    def root(self) -> Path:
        return self.base / "mps"

    @property
    def pipe(self) -> Path:
        return self.root / "p"

    @property
    def log(self) -> Path:
        return self.root / "l"

    @property
    def output(self) -> Path:
        """The daemon's own log."""
        return self.root / "daemon.log"

    @property
    def longest_socket_bytes(self) -> int:
        return len(os.fsencode(self.pipe / _LONGEST_SOCKET))

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of daemon and clients."""
        return {PIPE_VARIABLE: str(self.pipe), LOG_VARIABLE: str(self.log)}


def program_version(program: str) -> str:
    """The version of the driver that a control program belongs to; "" if it is unknown."""
    try:
        with Path(program).open("rb") as file:
            versions = set(_VERSION.findall(file.read(_MOST_PROGRAM_BYTES)))
    except OSError:
        return ""
    return versions.pop().decode() if len(versions) == 1 else ""


def control_release(program: str, directory: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """A control program's release, such as 13010 (0: unknown), and what it printed.

    It runs in ``directory``, where an old program finds no daemon to ask.
    """
    environment = {
        **variables,
        PIPE_VARIABLE: str(directory),
        LOG_VARIABLE: str(directory),
        "LC_ALL": "C",
        "PATH": os.defpath,
    }
    try:
        result = run_tool(
            [program, "-v"],
            environment=environment,
            directory=directory,
            timeout_seconds=_ANSWER_SECONDS,
            ending=EndingSteps(0.2, 0.2),
        )
    except OSError as error:
        return 0, str(error)
    output = (result.stdout + result.stderr).strip()
    match = _RELEASE.search(output)
    return (int(match[1]) if match else 0), output[:200] or result.ending


class MpsControl:
    """Sends commands to the daemon of the pipe folder that ``environment`` names."""

    def __init__(self, program: str, environment: Mapping[str, str], directory: Path) -> None:
        self._program, self._environment, self._directory = program, environment, directory

    def tell(self, command: str, seconds: float = _ANSWER_SECONDS) -> str:
        """The daemon's answer to a command; raises MpsError if it gives none or does not know the command."""
        result = run_tool(
            ["/bin/sh", "-c", _TELL, self._program, command],
            environment=self._environment,
            directory=self._directory,
            timeout_seconds=seconds,
            ending=EndingSteps(0.2, 0.2),
        )
        answer = result.stdout.strip()
        if result.timed_out:
            raise MpsError(f"the MPS daemon does not answer to {command!r} within {seconds:g} s")
        if result.exit_code != 0 or answer.startswith("Unknown command"):
            raise MpsError(
                f"the MPS daemon refuses {command!r}: {answer or result.stderr.strip() or result.ending}"
            )
        return answer

    def set_share(self, percent: float) -> float:
        """Set the share of the next server's clients and read it back, in percent; raises MpsError.

        The daemon rounds what it prints to tenths.
        """
        self.tell(f"set_default_active_thread_percentage {percent:g}")
        answer = self.tell("get_default_active_thread_percentage")
        try:
            return float(answer)
        except ValueError:
            raise MpsError(f"the MPS daemon says {answer!r} when asked for its share") from None

    def clients(self) -> list[tuple[int, int]]:
        """Server and client processes of every client; raises MpsError."""
        return [
            (server, client)
            for server in _numbers(self.tell("get_server_list"))
            for client in _numbers(self.tell(f"get_client_list {server}"))
        ]

    def terminate_clients(self) -> list[int]:
        """End the GPU work of every client, before a signal ends the client; raises MpsError."""
        clients = self.clients()
        for server, client in clients:
            self.tell(f"terminate_client {server} {client}")
        return [client for _, client in clients]


def _numbers(text: str) -> list[int]:
    return [int(line) for line in text.split() if line.isdecimal()]


class MpsDaemon:
    """One private daemon in ``folders``, which must exist and be empty.

    Args:
        program: path of the control program.
        environment: all of it, with the folders and the one GPU.
        folders: its private ones.
        held: descriptors (of locks) that stay open as long as it lives.
        options: of the daemon, besides ``-f``.
    """

    def __init__(
        self,
        program: str,
        environment: Mapping[str, str],
        folders: MpsFolders,
        locks: tuple[int, ...] = (),
        options: tuple[str, ...] = (),
    ) -> None:
        self.control = MpsControl(program, environment, folders.root)
        self.folders = folders
        self._program, self._environment, self._locks = program, environment, locks
        self._options = options
        self._end = threading.Event()
        self._result: ToolResult | OSError | None = None
        self._thread = threading.Thread(target=self._serve, name="assay-mps", daemon=True)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self, cancelled: threading.Event) -> None:
        """Start it and wait until it answers; raises MpsError."""
        self._thread.start()
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                if (self.folders.pipe / "control").exists():
                    self.control.tell("get_server_list")
                    return
                why = "it made no socket"
            except MpsError as error:
                why = str(error)
            if not self.alive:
                raise MpsError(f"the MPS daemon ended at once ({self.last_words()})")
            if time.monotonic() >= until or cancelled.is_set():
                raise MpsError(f"the MPS daemon did not start within {_START_SECONDS:g} s: {why}")
            cancelled.wait(_LOOK_SECONDS)

    def _serve(self) -> None:
        try:
            self._result = run_tool(
                ["/bin/sh", "-c", _SERVE, self._program, *self._options],
                environment=self._environment,
                directory=self.folders.root,
                timeout_seconds=float("inf"),
                cancelled=self._end,
                stdout_path=self.folders.output,
                held=self._locks,
                ending=_ENDING,
            )
        except OSError as error:
            self._result = error

    def stop(self) -> str:
        """End it in order: its clients, a quit, a quit with a limit, signals. Returns how it ended."""
        if not self._thread.ident:
            return "it was never started"
        try:
            pids = self.control.terminate_clients()
        except MpsError:
            pids = []
        clients = f"; clients that hung were terminated: {', '.join(map(str, pids))}" if pids else ""
        for command in ("quit", f"quit -t {_FORCE_SECONDS}"):
            if self._quit(command):
                return f"{command}{clients}"
        self._end.set()
        self._thread.join()
        return f"signals, because it did not quit{clients}"

    def _quit(self, command: str) -> bool:
        """Tell it to quit; whether it is gone."""
        if self.alive:
            # A daemon that quits may drop the connection, so what counts is whether it is gone.
            with contextlib.suppress(MpsError):
                self.control.tell(command, _QUIT_SECONDS + _FORCE_SECONDS)
        self._thread.join(_QUIT_SECONDS)
        return not self.alive

    def clients_seen(self) -> int:
        """How many clients it has had, by its log."""
        try:
            return self.folders.output.read_text(errors="replace").count(_NEW_CLIENT)
        except OSError:
            return 0

    def last_words(self) -> str:
        """The last line of its log that reports trouble, else the last line, else how it ended."""
        try:
            lines = self.folders.output.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        log_lines = [line.strip() for line in lines if line.strip()]
        log_lines = [line for line in log_lines if _TROUBLE.search(line)] or log_lines
        if isinstance(self._result, OSError):
            return str(self._result)
        return log_lines[-1] if log_lines else (self._result.ending if self._result else "it says nothing")
