"""Where a tool runs: the GPU, a clean environment, private folders, and the lock of the GPU.

A tool gets only PATH and LD_LIBRARY_PATH of the agent's environment (some boxes find the driver's libraries
only through the latter): no secrets, no settings of other tools, no injected libraries.
Source: docs/nvidia-tools.md, "Environment of a tool".
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay_agent.execution.compile_cache import VARIABLES
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.removal import remove_tree
from assay_agent.gpus.latest import LatestReading
from assay_agent.gpus.model import GpuModel
from assay_agent.gpus.telemetry_settings import TelemetrySettings
from assay_core.files.private_folders import make_private_folder
from assay_core.records.work import Work
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import Device

_log = logging.getLogger(__name__)

_SECRET = re.compile(r"SECRET|TOKEN|PASS|_PWD|CRED|KEY|AUTH|COOKIE|(^|_)DSN($|_)", re.IGNORECASE)
# https://user:password@proxy and the like, in any variable.
_PASSWORD_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+(?=@)")
_HIDDEN = "(hidden)"
# A shorter value is not a secret, and is part of too many words.
_LEAST_SECRET_CHARACTERS = 6
# A campaign may not set the agent's variables, or those that load libraries under the profiler.
_RESERVED = re.compile(
    r"HOME|TMPDIR|TMP|TEMP|TEMPDIR|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|"
    r"(CUDA|NVTX)_INJECTION(32|64)_PATH|NV_COMPUTE_PROFILER_\w*|CUDA_MPS_\w*|ASSAY_KINETO_FILE|"
    + "|".join(VARIABLES)
)
LIBRARIES = "LD_LIBRARY_PATH"
_JOBS = "jobs"
_LOCK_LOOK_SECONDS = 0.1
_LOCK_SECONDS = 60.0


@dataclass(frozen=True)
class MeasuredGPU:
    """The GPU of a slot.

    Args:
        device: as launch tables name it; ``index`` is its ordinal for CUDA in the tool's environment.
        path: the PATH in which its tools are found.
        variables: only for its tools.
        scope: what its lock and folders are private to: "" for a real GPU, which the box shares, and the
            agent's state directory for a modelled one, which is the agent's alone.
        telemetry: settings for watching it while it measures.
        driver_version: of NVIDIA's driver; "" for a modelled GPU.
        model: of a modelled GPU; None for a real one.
        latest: keeps the newest sample of its sensors.
        box: the GPUs of this agent's slots by UUID, itself among them, in the order of the box.
    """

    device: Device
    path: str
    variables: Mapping[str, str] = field(default_factory=dict)
    scope: str = ""
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    driver_version: str = ""
    model: GpuModel | None = None
    latest: LatestReading = field(default_factory=LatestReading, compare=False, repr=False)
    box: Mapping[str, MeasuredGPU] = field(default_factory=dict, compare=False, repr=False)

    @property
    def synthetic(self) -> bool:
        """Whether it is a modelled GPU, all of whose numbers are synthetic."""
        return self.model is not None

    def answering(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that change the versions, options and lists of the GPU's tools."""
        return _chosen(environment, self.model.version_variables if self.model else ())

    def refusing(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The variables that change which metrics the GPU's tools refuse."""
        return _chosen(environment, self.model.refusal_variables if self.model else ())


def _chosen(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: environment[name] for name in names if environment.get(name)}


def gang_of(gpu: MeasuredGPU, work: Work) -> tuple[MeasuredGPU, ...]:
    """The GPUs of a run that this GPU's slot leads, in the order of the box: their ordinals for CUDA.

    Raises ProfilerError if the agent does not have one of them.
    """
    uuids = {gpu.device.uuid, *work.gang}
    gpus = [other for uuid, other in gpu.box.items() if uuid in uuids] if work.gang else [gpu]
    if len(gpus) < len(uuids):
        missing = sorted(uuids - {other.device.uuid for other in gpus})
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            f"this agent has no {', '.join(missing)}, on which the run must also be made",
            "restart the agent, so that it tells the server which GPUs it has",
        )
    return tuple(gpus)


def tool_environment(gpu: MeasuredGPU, home: Path, temporary: Path, work: Work | None) -> dict[str, str]:
    """The whole environment of a tool; raises ProfilerError if a campaign sets an agent's variable."""
    gang = (gpu,) if work is None else gang_of(gpu, work)
    variables = dict(work.command.environment) if work is not None and work.command is not None else {}
    own = gpu.model.own_variables if gpu.model else ()
    names = sorted(name for name in variables if _RESERVED.fullmatch(name) or name in own)
    if names:
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key) if work is not None else "environment",
            f"the workload's environment sets {', '.join(names)}, which belongs to the agent",
            "leave it out of the campaign file",
        )
    libraries = ":".join(filter(None, (variables.get(LIBRARIES), gpu.variables.get(LIBRARIES))))
    environment = {
        "PATH": gpu.path,
        "LANG": "C",
        **variables,
        "LC_ALL": "C",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(each.device.uuid for each in gang),
        "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
        **gpu.variables,
        **({LIBRARIES: libraries} if libraries else {}),
    }
    if gpu.model and len(gang) > 1:
        environment |= gpu.model.gang_variables([each.variables for each in gang])
    if gpu.model and work is not None and work.condition.sm_percent is not None:
        environment |= gpu.model.share_variables(work.condition.sm_percent)
    return environment


def scrubbed(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment as logs may show it."""
    return {
        name: _HIDDEN if _SECRET.search(name) else _PASSWORD_IN_ADDRESS.sub(rf"\1{_HIDDEN}", value)
        for name, value in sorted(environment.items())
    }


def without_secrets(text: str, environment: Mapping[str, str]) -> str:
    """A program's output or arguments without the values that :func:`scrubbed` hides."""
    secrets = {value for name, value in environment.items() if _SECRET.search(name)}
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= _LEAST_SECRET_CHARACTERS:
            text = text.replace(value, _HIDDEN)
    return _PASSWORD_IN_ADDRESS.sub(rf"\1{_HIDDEN}", text)


@dataclass(frozen=True)
class Workspace:
    """Private folders of one attempt; ``lock`` is the descriptor of the GPU's lock.

    ``compiled``: for what the workload compiles (:mod:`assay_agent.execution.compile_cache`).
    ``others``: of a gang, the private folder and the lock's descriptor of each other GPU, by UUID.
    """

    home: Path
    temporary: Path
    job: Path
    compiled: Path
    lock: int
    others: Mapping[str, tuple[Path, int]] = field(default_factory=dict)

    @property
    def locks(self) -> tuple[int, ...]:
        """The descriptors of all locks, which every process of the run inherits."""
        return (self.lock, *(lock for _, lock in self.others.values()))


@contextlib.contextmanager
def workspace(gpu: MeasuredGPU, state: Path, work: Work, cancelled: threading.Event) -> Iterator[Workspace]:
    """Folders for one attempt, under the lock of the GPU and those of its gang; removed afterwards.

    ``home`` and ``temporary`` have short paths on a local disk (Unix sockets live there); ``job``, for
    reports, is on the disk of the agent's state. Raises ProfilerError if another agent has the GPU or the
    folders cannot be made.
    """
    job = state / _JOBS / work.key.directory_name
    with contextlib.ExitStack() as stack:
        # In one order for all runs of a box, so that two gangs never wait for each other.
        gang = sorted(gang_of(gpu, work), key=lambda each: each.device.uuid)
        locked = {each.device.uuid: stack.enter_context(_lock(each, cancelled)) for each in gang}
        base, lock = locked.pop(gpu.device.uuid)
        home, temporary, compiled = (base / name for name in ("home", "tmp", "compiled"))
        folders = [home, temporary, job, compiled]
        _remove_leftovers(folders)
        try:
            for folder in folders:
                make_private_folder(folder.parent)
                folder.mkdir(mode=0o700)
                stack.callback(remove_if_possible, folder)
        except OSError as error:
            raise ProfilerError(
                FailureClass.DISK_FULL,
                str(error.filename),
                f"the folder cannot be made ({error.strerror})",
                "give the agent's user disk space and permission there",
            ) from error
        yield Workspace(home, temporary, job, compiled, lock, locked)


def _remove_leftovers(folders: Iterable[Path]) -> None:
    """Remove what an earlier run left; raises ProfilerError, which rests the slot, if that fails."""
    for folder in folders:
        try:
            remove_tree(folder)
        except OSError as error:
            raise ProfilerError(
                FailureClass.LEFTOVERS,
                str(folder),
                f"{error.filename or folder}, left by an earlier run, cannot be removed ({error.strerror})",
            ) from error


def remove_if_possible(folder: Path) -> None:
    """Remove a folder of the agent's; what stays is logged, and met by whoever needs the place next."""
    try:
        remove_tree(folder)
    except OSError as error:
        _log.error("%s cannot be removed: %s (%s)", folder, error.filename, error.strerror or error)


def remove_old_jobs(state: Path) -> None:
    """Remove reports that an earlier process of the agent left."""
    remove_if_possible(state / _JOBS)


def private_directory(gpu: MeasuredGPU) -> Path:
    """The GPU's folder of this user, mode 700, with a short path; raises ProfilerError."""
    name = hashlib.blake2b(f"{gpu.scope}\0{gpu.device.uuid}".encode(), digest_size=6).hexdigest()
    top = Path(tempfile.gettempdir()) / f"assay-{os.getuid()}"
    try:
        for folder in (top, top / name):
            require_private(folder)
    except OSError as error:
        raise ProfilerError(
            FailureClass.DISK_FULL, str(top), f"it cannot be made ({error.strerror})"
        ) from error
    return top / name


def require_private(folder: Path) -> None:
    """Make the folder if it is missing; raises ProfilerError if others have access to it, OSError."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o777 != 0o700 or folder.is_symlink():
        raise ProfilerError(
            FailureClass.LOCK_FILE,
            str(folder),
            "it is not a private folder of this user",
            "remove it, or start the agent with another TMPDIR",
        )


@contextlib.contextmanager
def _lock(gpu: MeasuredGPU, cancelled: threading.Event) -> Iterator[tuple[Path, int]]:
    """The GPU's private folder, under its lock, and the lock's descriptor.

    The folder of a modelled GPU belongs to one agent and is removed with its lock: whoever waits for that
    lock takes the next one.
    """
    until = time.monotonic() + _LOCK_SECONDS
    while (handle := _try_lock(base := private_directory(gpu))) is None:
        if time.monotonic() >= until or cancelled.is_set():
            raise ProfilerError(
                FailureClass.LOCK_FILE,
                f"GPU {gpu.device.uuid}",
                f"another agent, or a tool that an earlier one left, holds its lock {base / 'lock'}",
                "let one agent of this user drive the GPU",
            )
        cancelled.wait(_LOCK_LOOK_SECONDS)
    try:
        yield base, handle
    finally:
        if gpu.scope:
            remove_if_possible(base)
        os.close(handle)


def _try_lock(base: Path) -> int | None:
    """The descriptor of the folder's lock; None if somebody else has it, or has just removed it."""
    path = base / "lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    os.close(handle)
    return None
