"""Undoes what an agent that was killed left behind while its conditions were in force.

Our daemons are recognised by their environment: processes of this user whose CUDA_MPS_PIPE_DIRECTORY is
the private folder of a GPU. Nothing else is ever ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay_agent.conditions.journal import Journal
from assay_agent.conditions.mps_control import PIPE_VARIABLE, MpsControl, MpsError, MpsFolders
from assay_agent.gpus.nvml import NvmlError, nvml_device
from assay_agent.guards.dcgm import DcgmPause
from assay_core.processes.tool_run import run_tool
from assay_sampling.errors import StorageError
from assay_sampling.installation import install_command

if TYPE_CHECKING:
    import psutil

_log = logging.getLogger(__name__)

MPS_ENTRY, CLOCKS_ENTRY, NCU_CLOCKS_ENTRY = "mps", "clocks", "ncu_clocks"
# The supervisors of a killed agent end their trees within about two seconds, and hold the lock until then.
_LOCK_SECONDS = 15.0
_LOOK_SECONDS = 0.05
_QUIT_SECONDS = 5.0
_TERMINATE_SECONDS = 2.0
_KILL_SECONDS = 5.0
_RESET_SECONDS = 60.0


def undo_leftovers(state: Path) -> None:
    """Undo what journals in an agent's state directory name; called at its start, before any run.

    A GPU whose lock somebody else holds is left to the next run on it, which undoes it first. Never
    raises: what cannot be undone is logged and stays in its journal.
    """
    for journal in Journal.leftovers(state):
        with _locked(journal.lock) as has_lock:
            if has_lock:
                undo(journal)
            else:
                _log.warning(
                    "GPU %s is in use, so what an earlier agent left on it is not undone", journal.gpu_uuid
                )
    pauses = Path(tempfile.gettempdir()) / f"assay-{os.getuid()}" / "dcgm"
    DcgmPause(pauses, os.environ.get("PATH", os.defpath)).resume_leftovers()


def undo(journal: Journal) -> None:
    """Undo every entry of a journal, the last first, under the lock of the GPU."""
    for name, entry in reversed(journal.entries().items()):
        _log.info("GPU %s: undoing %s (%s)", journal.gpu_uuid, name, entry.get("step"))
        try:
            _UNDO.get(name, _unknown)(journal, entry)
            journal.end(name)
        except (NvmlError, StorageError, OSError, KeyError) as error:
            _log.warning("GPU %s: %s cannot be undone: %s", journal.gpu_uuid, name, error)


def _unknown(journal: Journal, entry: Mapping[str, Any]) -> None:
    _log.warning("GPU %s: the journal has an unknown entry %s", journal.gpu_uuid, dict(entry))


def _undo_mps(journal: Journal, entry: Mapping[str, Any]) -> None:
    end_daemon(Path(entry["base"]), entry["program"])


def end_daemon(base: Path, program: str) -> None:
    """End the daemon of the GPU's folder ``base``, its server and its clients; raises OSError."""
    folders = MpsFolders(base)
    if _living(folders.pipe):
        variables = {"PATH": os.defpath, "LC_ALL": "C", **folders.variables}
        with contextlib.suppress(MpsError, OSError):
            MpsControl(program, variables, base).tell("quit -t 1", _QUIT_SECONDS)
    for number, seconds in (
        (0, 0.5),
        (signal.SIGTERM, _TERMINATE_SECONDS),
        (signal.SIGKILL, _KILL_SECONDS),
    ):
        if not _end(folders.pipe, number, seconds):
            break
    else:
        pids = [process.pid for process in _living(folders.pipe)]
        raise OSError(f"processes {pids} of the MPS daemon do not end")
    shutil.rmtree(folders.root, ignore_errors=True)


def _end(pipe: Path, number: int, seconds: float) -> list[psutil.Process]:
    """Signal the living processes until none is left or the time is over; returns those that are left."""
    import psutil  # noqa: PLC0415

    until = time.monotonic() + seconds
    while (living := _living(pipe)) and time.monotonic() < until:
        for process in living:
            with contextlib.suppress(psutil.Error):  # psutil sends nothing to a reused process number
                process.send_signal(number)
        time.sleep(_LOOK_SECONDS)
    return living


def _living(pipe: Path) -> list[psutil.Process]:
    """Processes of this user, except this one, that have this pipe folder in their environment."""
    try:
        import psutil  # noqa: PLC0415 - only GPUs need it, and a box without any has no journal
    except ImportError as error:
        raise OSError(f"psutil is not installed: {install_command('agent')}") from error
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.uids().effective == os.geteuid() and process.environ().get(PIPE_VARIABLE) == str(pipe):
                processes.append(process)
    return [process for process in processes if process.pid != os.getpid()]


def _undo_clocks(journal: Journal, entry: Mapping[str, Any]) -> None:
    with nvml_device(journal.gpu_uuid) as (nvml, handle):
        nvml.nvmlDeviceResetGpuLockedClocks(handle)


def _undo_ncu_clocks(journal: Journal, entry: Mapping[str, Any]) -> None:
    reset_ncu_clocks(entry["program"], journal.gpu_uuid)


def reset_ncu_clocks(program: str, gpu_uuid: str, variables: Mapping[str, str] | None = None) -> str:
    """Let Nsight Compute unlock the clocks of a GPU that it may have left locked; returns how that ended.

    Raises OSError.
    """
    with tempfile.TemporaryDirectory(prefix="assay-ncu-") as folder:
        environment = {
            "PATH": os.defpath, "LC_ALL": "C", "HOME": folder, "TMPDIR": folder,
            "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
            **(variables or {}),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu_uuid,
        }  # fmt: skip
        result = run_tool(
            [program, "--clock-control", "reset"],
            environment=environment,
            directory=Path(folder),
            timeout_seconds=_RESET_SECONDS,
        )
    lines = (result.stdout + result.stderr).strip().splitlines()
    return f"{result.ending}{': ' + lines[-1][:200] if lines else ''}"


_UNDO = {MPS_ENTRY: _undo_mps, CLOCKS_ENTRY: _undo_clocks, NCU_CLOCKS_ENTRY: _undo_ncu_clocks}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a GPU's lock; False if somebody else holds it. If its folder is gone, nobody can hold it."""
    if not path.parent.is_dir():
        yield True
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _flock(handle)
    finally:
        os.close(handle)


def _flock(handle: int) -> bool:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= until:
                return False
        time.sleep(_LOOK_SECONDS)
