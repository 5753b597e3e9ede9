"""Whose a process is: the run's own, our MPS server's, somebody else's, or unknown.

The driver may number processes as the host does while the agent runs in a container, where such a number
means nothing; and if ``/proc`` hides other users' processes (``hidepid``), they cannot be looked up either.
Without psutil (extra ``agent``), all are unknown. Source: docs/validity.md, "How the GPU is watched".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import psutil

_MPS_PROGRAMS = ("nvidia-cuda-mps",)


class Owner(Enum):
    """Whose a process is."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class ProcessOwners:
    """Tells processes apart.

    Args:
        directory: private to this GPU; MPS daemons with their pipes below it are ours.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def owner(self, process_id: int) -> Owner:
        """UNKNOWN: it has ended, its number is from another namespace, or it cannot be looked up."""
        lineage = _looked_up(process_id, _lineage)
        if lineage is None:
            return Owner.UNKNOWN
        ours = os.getpid() in lineage or self._our_mps(process_id)
        return Owner.OURS if ours else Owner.FOREIGN

    def name(self, process_id: int) -> str:
        """As :func:`process_name`."""
        return process_name(process_id)

    def _our_mps(self, process_id: int) -> bool:
        if not self.name(process_id).startswith(_MPS_PROGRAMS):
            return False
        variables = _looked_up(process_id, lambda process: process.environ())
        pipe = (variables or {}).get("CUDA_MPS_PIPE_DIRECTORY", "")
        return bool(pipe) and Path(pipe).is_relative_to(self._directory)


def process_name(process_id: int) -> str:
    """A process's name; "" if it cannot be looked up."""
    return _looked_up(process_id, lambda process: process.name()) or ""


def _lineage(process: psutil.Process) -> tuple[int, ...]:
    """The process and its parents; psutil leaves out numbers that a younger process has reused."""
    return process.pid, *(parent.pid for parent in process.parents())


Answer = TypeVar("Answer")


def _looked_up(process_id: int, ask: Callable[[psutil.Process], Answer]) -> Answer | None:
    """The answer of ``ask`` about a process; None if it has ended or access is denied."""
    try:
        import psutil  # noqa: PLC0415 - virtual GPUs measure without the extra "agent"
    except ImportError:
        return None
    try:
        return ask(psutil.Process(process_id))
    except (psutil.Error, OSError):
        return None
