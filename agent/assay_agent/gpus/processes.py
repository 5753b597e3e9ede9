"""Whose a process is: the run's own, our MPS server's, somebody else's, or unknown.

A desktop (display server, compositor) may have a compute context next to its graphics context: ``nvidia-smi``
writes C+G. It does not compute, so it is told apart from other foreign processes.

The driver may number processes as the host does while the agent runs in a container, where such a number
means nothing; and if ``/proc`` hides other users' processes (``hidepid``), they cannot be looked up either.
Without psutil (extra ``agent``), all are unknown. Source: docs/validity.md, "How the GPU is watched".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import psutil

_MPS_PROGRAMS = ("nvidia-cuda-mps",)
# Display servers, compositors and greeters, by the names of their processes.
_DESKTOPS = frozenset({
    "X", "Xorg", "Xorg.bin", "Xwayland", "Xvfb", "gnome-shell", "gnome-remote-desktop-daemon", "mutter",
    "mutter-x11-frames", "kwin", "kwin_x11", "kwin_wayland", "plasmashell", "ksmserver", "cinnamon", "muffin",
    "marco", "xfwm4", "xfce4-panel", "compiz", "picom", "compton", "budgie-wm", "enlightenment", "sway",
    "weston", "Hyprland", "wayfire", "river", "labwc", "niri", "cosmic-comp", "sddm-greeter",
    "lightdm-gtk-greeter",
})  # fmt: skip


class Owner(Enum):
    """Whose a process is."""

    OURS = "ours"
    FOREIGN = "foreign"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Clients:
    """The processes that NVML lists on a GPU: with a compute context, with a graphics context."""

    compute: Collection[int]
    graphics: Collection[int] = ()


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

    def others(self, clients: Clients, *, known_only: bool = False) -> tuple[dict[int, str], dict[int, str]]:
        """Processes with a compute context that are not ours, with their names: foreign ones, and desktops.

        ``known_only``: leave out those whose owner is unknown.
        """
        passed = {Owner.OURS, Owner.UNKNOWN} if known_only else {Owner.OURS}
        foreign: dict[int, str] = {}
        desktops: dict[int, str] = {}
        for process_id in clients.compute:
            if self.owner(process_id) not in passed:
                kind = desktops if is_desktop(process_id, clients) else foreign
                kind[process_id] = self.name(process_id)
        return foreign, desktops

    def name(self, process_id: int) -> str:
        """As :func:`process_name`."""
        return process_name(process_id)

    def _our_mps(self, process_id: int) -> bool:
        if not self.name(process_id).startswith(_MPS_PROGRAMS):
            return False
        variables = _looked_up(process_id, lambda process: process.environ())
        pipe = (variables or {}).get("CUDA_MPS_PIPE_DIRECTORY", "")
        return bool(pipe) and Path(pipe).is_relative_to(self._directory)


def is_desktop(process_id: int, clients: Clients) -> bool:
    """Whether a process draws a desktop: it is a graphics client too, and has the name of one."""
    return process_id in clients.graphics and process_name(process_id) in _DESKTOPS


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
