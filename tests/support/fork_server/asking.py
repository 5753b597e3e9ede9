"""What a test's process asks of the process that forks, and how it gets the new process as its child."""

from __future__ import annotations

import ctypes
import json
import multiprocessing.util
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay_client.demonstration import bound

_BIN = Path(sys.executable).parent
_PROGRAMS = {str(_BIN / name) for name in ("assay", "assay-server", "assay-agent")}
_MODULES = {"assay_agent.main", "assay_client.cli.main"}
# What the interpreter, the loader or a library reads before a program begins: a fork is too late for them.
_READ_EARLY = (
    "PYTHON", "LC_", "LANG", "LD_", "GLIBC", "MALLOC", "ARROW_", "OMP_", "OPENBLAS_", "GRPC_", "FORCE_COLOR",
    "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "TYPER_", "_TYPER",
)  # fmt: skip
_SET_BY_PROGRAMS = {"GRPC_VERBOSITY": "NONE"}
_KNOWN_LATER = {*_SET_BY_PROGRAMS, "PYTHONUNBUFFERED"}
# Room for the command lines that the kernel shows of forks.
_PADDING = "-" * 4096
_spawnv_passfds = multiprocessing.util.spawnv_passfds  # type: ignore[attr-defined]
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST_MESSAGE = 1 << 20
_LIMITS = sorted({value for name, value in vars(resource).items() if name.startswith("RLIMIT_")})


@dataclass(frozen=True)
class Start:
    """A process to begin: a script or module with its arguments, or a worker of multiprocessing."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    new_session: bool
    descriptors: Sequence[int] = (0, 1, 2)
    bound_to: int = 0  # the parent whose end ends it, as ``assay_client.demonstration.bound`` does

    def message(self) -> bytes:
        """With what the new process would have from its parent."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        inherited = {
            "umask": int(status["Umask"], 8),
            "ignored": int(status["SigIgn"], 16),
            "limits": [(kind, resource.getrlimit(kind)) for kind in _LIMITS],
        }
        return json.dumps(asdict(self) | inherited).encode()


def start_of(args: Any, folder: Any, environment: Mapping[Any, Any], *, new_session: bool) -> Start | None:
    """The start of this command line, or None: something else than one of our programs."""
    words = [args] if isinstance(args, str | bytes | os.PathLike) else args
    argv = [os.fsdecode(word) for word in words]
    bound_to = 0
    if argv[:4] == [sys.executable, "-I", "-S", bound.__file__] and len(argv) > 5:
        bound_to, argv = int(argv[4]), argv[5:]
    is_module = argv[0] == sys.executable and argv[1:2] == ["-m"] and _MODULES.issuperset(argv[2:3])
    if argv[0] not in _PROGRAMS and not is_module:
        return None
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
    place = str(Path(os.fsdecode(folder or ".")).absolute())
    return Start(argv, variables, place, new_session, bound_to=bound_to)


def early(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that a fork must find as they were."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(_READ_EARLY) and name not in _KNOWN_LATER
    }


class ForkServer:
    """The process that has loaded Assay, begun with the first program. For tests, and in forks for theirs."""

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._variables = dict(os.environ)
        self._lock = threading.Lock()

    def can_begin(self, start: Start) -> bool:
        """Whether the program may be a fork, which finds what was read before as it was."""
        return early(start.environment) == early(self._variables) and Path(start.folder).is_dir()

    def worker(self, path: Any, args: Sequence[Any], descriptors: Sequence[int]) -> int:
        """Instead of :func:`multiprocessing.util.spawnv_passfds`."""
        argv = [os.fsdecode(word) for word in args]
        if not any("spawn_main" in word for word in argv):
            return _spawnv_passfds(path, args, descriptors)
        passed = sorted({0, 1, 2, *map(int, descriptors)})
        try:
            return self.begin(Start(argv, dict(os.environ), str(Path.cwd()), False, passed), passed)
        except OSError:  # a signal to the whole group ended it, or its message is too long
            return _spawnv_passfds(path, args, descriptors)

    def close(self) -> None:
        """End the process that forks."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def begin(self, start: Start, descriptors: Sequence[int]) -> int:
        """Begin the process with these descriptors of ours; its number, as a child of this process."""
        with self._lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            if not self._path:
                self._path = self._started()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST_MESSAGE)
            connection.connect(self._path)
            _adopt_orphans(True)
            try:
                socket.send_fds(connection, [start.message()], descriptors)
                answer = connection.recv(64)
            finally:
                _adopt_orphans(False)
            if not answer:
                raise ConnectionResetError("the process that forks programs for tests has ended")
            # Until now the new process waits: its parent is this one from its first statement on.
            connection.send(b"go")
            return int(answer)

    def _started(self) -> str:
        name = new_name()
        with listening(name) as listener:
            module = "tests.support.fork_server.forking"
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(listener.fileno()), _PADDING],
                stdin=subprocess.PIPE, pass_fds=[listener.fileno()], cwd=Path(__file__).parents[3],
                env=self._variables | _SET_BY_PROGRAMS,
            )  # fmt: skip
        return name


def new_name() -> str:
    """A name for a socket that is in no folder."""
    return f"\0assay-tests-{os.getpid()}-{os.urandom(8).hex()}"


def listening(name: str) -> socket.socket:
    """A socket of that name, whose callers wait until they are heard."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(name)
    listener.listen(64)
    return listener


def _adopt_orphans(yes: bool) -> None:
    """Whether a process whose parent ended becomes a child of this one: in a moment it is the one begun."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
