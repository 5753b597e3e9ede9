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
    "permission": "ncu: the driver lets only administrators read counters (ERR_NVGPUCTRPERM)",
    "counter_busy": "ncu: another program holds the performance counters",
    "lock_file": "ncu: the lock file cannot be opened",
    "metric_unknown": "ncu: the last metric that was asked for (metric_unknown:A+B: A and B) does not exist",
    "counters_nan": "ncu: every third launch has no value of the counters that need passes",
    "clock_unlocked": "both: the clocks cannot be locked, so they run free",
    "unsupported_gpu": "ncu: the tool does not know the GPU",
    "report_short": "both: the report lacks the last third of the launches",
    "stopped": "ncu: somebody tells the tool to stop after a third of the launches that were asked for",
    "report_truncated": "both: the report is cut in half",
    "output_exists": "both: the report cannot be overwritten, although that was asked for",
    "disk_full": "both: there is no space for the report",
    "hang": "both: nothing happens any more after the first launch (hang:stubborn ignores signals)",
    "nothing_profiled": "both: the program launches no kernel",
    "no_driver": "both: there is no CUDA driver",
    "gpu_lost": "both: the GPU is lost after a third of the launches (gpu_lost:UUID: that GPU alone)",
    "application_failed": "all: the program exits with CODE (1) after half of its launches",
    "application_killed": "all: the program dies of SIGNAL (9) after half of its launches",
    "importer_failed": "nsys: the importer fails, and only the raw file is left",
    "dropped_events": "nsys: every tenth kernel is missing, and the diagnostics say so",
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
