"""Whose a process is: the run's own, our MPS server's, somebody else's, or none that can be looked up.

The driver may number processes as the host does while the agent lives in a container, where such a number
means nothing. Source: notes on Nsight Compute, Nsight Systems, MPS and NVML, sections 4 and 5.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path

_MPS_PROGRAMS = ("nvidia-cuda-mps",)  # the kernel cuts names after 15 characters


class Owner(Enum):
    """Whose a process is."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


class ProcessOwners:
    """Tells processes apart. ``directory``: MPS daemons with their pipes below it are ours.

    Args:
        directory: the private folder of this GPU.
        proc: where the kernel tells of processes; only tests give another.
    """

    def __init__(self, directory: Path, proc: Path = Path("/proc")) -> None:
        self._directory, self._proc = directory, proc

    def owner(self, process_id: int) -> Owner:
        """UNKNOWN: it has ended, or its number is that of another namespace."""
        parent: int | None = process_id
        seen = 0
        while parent and parent != os.getpid() and seen < 1000:
            seen += 1
            child, parent = parent, self._parent(parent)
            if parent is None and child == process_id:
                return Owner.UNKNOWN
        if parent == os.getpid():
            return Owner.OURS
        return Owner.OURS if self._our_mps(process_id) else Owner.FOREIGN

    def name(self, process_id: int) -> str:
        """What the kernel calls it; "" where it cannot be looked up."""
        try:
            return (self._proc / str(process_id) / "comm").read_text(errors="replace").strip()
        except OSError:
            return ""

    def _parent(self, process_id: int) -> int | None:
        try:
            stat = (self._proc / str(process_id) / "stat").read_bytes()
            return int(stat.rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None

    def _our_mps(self, process_id: int) -> bool:
        if not self.name(process_id).startswith(_MPS_PROGRAMS):
            return False
        try:
            variables = (self._proc / str(process_id) / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        pipes = [v.partition(b"=")[2] for v in variables if v.startswith(b"CUDA_MPS_PIPE_DIRECTORY=")]
        return any(Path(os.fsdecode(pipe)).is_relative_to(self._directory) for pipe in pipes if pipe)
