"""Fault switches: failures that can be requested, so that each is tested before a real box shows it.

``ASSAY_VIRTUAL_FAULTS`` is a list separated by commas; a switch may have an argument after a colon
(``application_failed:7``). "@PATH" takes the list from a file, which every run reads again. FAULTS says what
each does; the texts are those of the real tools.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay_sampling.errors import ParameterError

FAULTS: dict[str, str] = {
    "permission": "ncu: ERR_NVGPUCTRPERM, nothing profiled, status 1",
    "counter_busy": "ncu: 'a driver resource was unavailable', status 9",
    "lock_file": "ncu: 'Failed to open/create lock file', status 9",
    "metric_unknown": "ncu: 'Failed to find metric' for the last metric asked for, status 9; metric_unknown:"
    "A+B: only for A and B, one at a time",
    "counters_nan": "ncu: 'n/a' for every third launch",
    "clock_unlocked": "clocks cannot be locked; ncu warns",
    "unsupported_gpu": "ncu: 'Unsupported GPU', status 9",
    "report_short": "the report lacks the last third of what the log announced, status 0",
    "stopped": "ncu: stopped after a third of the launches, status 9",
    "report_truncated": "the report is cut in half, status 0",
    "output_exists": "ncu: status 1; nsys: status 0, and the report is under another name",
    "disk_full": "ncu: 'Insufficient memory and disk space', status not 0; nsys: status 0, only the raw file",
    "hang": "nothing happens any more; with hang:stubborn only SIGKILL ends it",
    "nothing_profiled": "no launch at all, status 0",
    "no_driver": "ncu: 'failed to connect to the CUDA driver' past the log file, status 1; nsys: no kernels, "
    "status 1",
    "gpu_lost": "the launches of the first third, then 'LaunchFailed', status 1; the sensors report the GPU "
    "as lost; gpu_lost:UUID: only on GPUs whose UUIDs begin so",
    "application_failed": "application_failed:CODE: the program exits with CODE (1) after half of its "
    "launches; so do the tools",
    "application_killed": "application_killed:SIGNAL: the program dies of SIGNAL (9) instead; the status is "
    "the signal's number with ncu, 128 more with nsys",
    "importer_failed": "nsys: status 0 and only the raw file (.qdstrm)",
    "dropped_events": "nsys: every tenth kernel is missing; DIAGNOSTIC_EVENT says so",
    "lost_events": "nsys: every tenth kernel is missing, and nothing says so",
    "lost_end": "nsys: the kernel of the last launch call is missing, and nothing says so",
}
_WITH_NUMBER = {"application_failed": (1, 255), "application_killed": (1, 31)}
_DEFAULT_NUMBER = {"application_failed": 1, "application_killed": 9}


@dataclass(frozen=True)
class Faults:
    """The switches that are on, each with its argument ("" without one)."""

    on: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.on

    def number(self, name: str) -> int:
        """The argument of ``application_failed`` or ``application_killed``."""
        return int(self.on[name] or _DEFAULT_NUMBER[name])

    def argument(self, name: str) -> str:
        return self.on[name]

    def loses(self, uuid: str) -> bool:
        """Whether the switch loses this GPU: it loses all, or those whose UUIDs begin as it says."""
        return "gpu_lost" in self and uuid.startswith(self.on["gpu_lost"])


def parse_faults(text: str) -> Faults:
    """The switches of ``ASSAY_VIRTUAL_FAULTS``; raises ParameterError for one that does not exist."""
    on: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, argument = part.partition(":")
        if name not in FAULTS:
            raise ParameterError(
                "ASSAY_VIRTUAL_FAULTS", f"it has no switch {name!r}", f"use one of {', '.join(FAULTS)}"
            )
        if argument and not _fits(name, argument):
            raise ParameterError("ASSAY_VIRTUAL_FAULTS", f"{argument!r} is not a valid argument of {name!r}")
        on[name] = argument
    return Faults(on)


def _fits(name: str, argument: str) -> bool:
    if name == "hang":
        return argument == "stubborn"
    if name == "metric_unknown":
        return re.fullmatch(r"[\w.]+(\+[\w.]+)*", argument) is not None
    if name == "gpu_lost":
        return argument.startswith("GPU-")
    least, greatest = _WITH_NUMBER.get(name, (1, 0))
    return argument.isdecimal() and least <= int(argument) <= greatest
