"""Forked processes without exec that have loaded CUDA's library: Nsight Systems does not follow them.

PyTorch's ``mp.Process`` and vLLM start their workers like that. A worker that PyTorch's data loader forks
looks alike, but cannot use CUDA if its parent did before.

Source: proc(5), ``/proc/PID/stat`` (flags, starttime) and ``/proc/PID/status`` (NSpid); PF_FORKNOEXEC in
Linux's ``include/linux/sched.h``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

_FORKED_WITHOUT_EXEC = 0x40
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ForkedProcess:
    """A process that was forked without exec.

    Args:
        process, parent: their numbers as they know them themselves, in a container too.
        began_ns: since the epoch, right to some tens of milliseconds.
    """

    process: int
    parent: int
    began_ns: int


def forked_process(proc: Path, process: int) -> ForkedProcess | None:
    """What is known of a process; None if it has called exec, or has ended.

    ``proc``: the folder of all processes.
    """
    try:
        # The name, in brackets, may hold anything; fields are counted after it.
        fields = (proc / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        if not int(fields[6]) & _FORKED_WITHOUT_EXEC:
            return None
        up_seconds = float((proc / "uptime").read_text().split()[0])
        age_seconds = up_seconds - int(fields[19]) / _TICKS
        parent = int(fields[1])
        return ForkedProcess(
            _own_number(proc, process), _own_number(proc, parent), int((time.time() - age_seconds) * 1e9)
        )
    except (OSError, ValueError, IndexError):
        return None


def _own_number(proc: Path, process: int) -> int:
    for line in (proc / str(process) / "status").read_text(errors="replace").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return process


def missed(forked: Collection[ForkedProcess], first_calls_ns: Mapping[int, int]) -> list[ForkedProcess]:
    """The forked processes that a trace may lack: it has no call of theirs, and their parents, as far as they
    are there, had not used CUDA before them.

    ``first_calls_ns``: by process, when its first traced call of CUDA began, since the epoch.
    """
    parents = {each.process: each.parent for each in forked}
    return [
        each
        for each in forked
        if each.process not in first_calls_ns
        and not any(
            first_calls_ns.get(ancestor, each.began_ns) < each.began_ns
            for ancestor in _ancestors(each.process, parents)
        )
    ]


def _ancestors(process: int, parents: Mapping[int, int]) -> list[int]:
    ancestors: list[int] = []
    while process in parents and parents[process] not in ancestors:
        process = parents[process]
        ancestors.append(process)
    return ancestors
