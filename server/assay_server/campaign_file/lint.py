"""Doubtful entries of a valid campaign file: unknown GPUs, files that are missing or cannot be sent.

An agent may run on another box, so a file that is missing here may exist there: the calling verb decides
whether that is an error.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from assay_core.bundles.packing import entries_of
from assay_sampling.errors import CampaignError, InputError
from assay_sampling.running.gpu_names import GPU_NAMES, either, nearest
from assay_sampling.running.identity import device_key
from assay_server.campaign_file.faults.messages import field_path
from assay_server.campaign_file.reading import CampaignFile
from assay_server.campaign_file.yaml_source import Place

_LONGEST_LIST = 6
_ELSEWHERE = "correct the path, create the file, or check that the agents have it"
_HERE = "correct the path, or create the file"


class Weight(Enum):
    """How certain it is that the campaign cannot run as written."""

    CERTAIN = "no agent could ever run it"
    LOCAL = "nothing on this machine could run it"
    DOUBTFUL = "it may be right"


@dataclass(frozen=True)
class Finding:
    """A doubtful entry: its place in the file, the cause in one sentence, and what to do.

    ``remedy_here`` replaces ``remedy`` where everything must run on this machine; "": no difference.
    """

    line: int
    field: str
    cause: str
    remedy: str
    weight: Weight
    remedy_here: str = ""


def _finding(
    file: CampaignFile, place: Place, cause: str, remedy: str, weight: Weight, *, remedy_here: str = ""
) -> Finding:
    return Finding(file.line(place), field_path(place), cause, remedy, weight, remedy_here)


@dataclass(frozen=True)
class Findings:
    """All doubtful entries of a valid campaign file, by line."""

    file_name: str
    findings: tuple[Finding, ...]

    def to_documents(self) -> list[dict[str, Any]]:
        """Each as "file", "line", "field", "cause", "remedy"."""
        return [
            {
                "file": self.file_name,
                "line": finding.line,
                "field": finding.field,
                "cause": finding.cause,
                "remedy": finding.remedy,
            }
            for finding in self.findings
        ]

    def refuse(self, *, here: bool) -> None:
        """Raise CampaignError for findings that are certainly wrong.

        With ``here`` (everything must run on this machine) also for files that are missing on it.
        """
        refused = (Weight.CERTAIN, Weight.LOCAL) if here else (Weight.CERTAIN,)
        wrong = [finding for finding in self.findings if finding.weight in refused]
        if wrong:
            first, *others = wrong[:_LONGEST_LIST]
            cause = [f"field {first.field}: {first.cause}"]
            cause += [
                f"{self.file_name}:{other.line}: field {other.field}: {other.cause}" for other in others
            ]
            if len(wrong) > _LONGEST_LIST:
                cause.append(f"and {len(wrong) - _LONGEST_LIST} more")
            remedy = first.remedy_here or first.remedy
            raise CampaignError(f"{self.file_name}:{first.line}", "\n".join(cause), remedy)


def look_at(file: CampaignFile, folder: Path, virtual_gpus: Sequence[str]) -> Findings:
    """All doubtful entries of a valid campaign file.

    Args:
        file: the campaign file.
        folder: the file's folder; relative paths start there.
        virtual_gpus: all kinds of virtual GPUs.
    """
    findings = [*_gpus(file, virtual_gpus), *_files(file, folder), *_bundles(file, folder)]
    return Findings(file.name, tuple(sorted(findings, key=lambda finding: finding.line)))


def _gpus(file: CampaignFile, virtual_gpus: Sequence[str]) -> Iterator[Finding]:
    campaign = file.campaign
    names = virtual_gpus if campaign.synthetic else GPU_NAMES
    for position, kind in enumerate(campaign.gpus):
        meant = nearest(kind, names, device_key)
        if meant is None:
            continue
        place: Place = ("gpus", position)
        hint = f" (did you mean {either(meant)}?)" if meant else ""
        if campaign.synthetic:
            cause, remedy = f"there is no virtual GPU {kind!r}{hint}", f"there are {', '.join(virtual_gpus)}"
            yield _finding(file, place, cause, remedy, Weight.CERTAIN)
        else:
            cause = f"no known GPU is called {kind!r}{hint}, and runs wait until an agent has one"
            remedy = "name it in full, as 'assay-agent inventory' on the box does"
            yield _finding(file, place, cause, remedy, Weight.DOUBTFUL)


def _files(file: CampaignFile, folder: Path) -> Iterator[Finding]:
    for position, workload in enumerate(file.campaign.workloads):
        place: Place = ("workloads", position)
        if workload.command and workload.bundle is None:
            yield from _program(workload.command[0], (*place, "command", 0), file, folder)
        for number, recording in enumerate(workload.recordings):
            for level, path in reversed(list(recording.levels())):
                here = (*place, "recordings", number, level)
                yield from _missing("recording", path, here, file, folder)


def _bundles(file: CampaignFile, folder: Path) -> Iterator[Finding]:
    """Folders whose files cannot be sent: they are sent from the machine of whoever submits, so from here."""
    for position, workload in enumerate(file.campaign.workloads):
        if workload.bundle is None:
            continue
        try:
            entries_of(folder / workload.bundle)
        except InputError as error:
            place: Place = ("workloads", position, "bundle")
            cause = f"its files cannot be sent: {error.subject}: {error.cause}"
            yield _finding(file, place, cause, error.remedy, Weight.CERTAIN)


def _program(program: str, place: Place, file: CampaignFile, folder: Path) -> Iterator[Finding]:
    """A program with a slash is a file, and so is a workload of virtual GPUs; the agent finds others."""
    if program.endswith(".toml"):
        yield from _missing("workload file", program, place, file, folder)
    elif "/" in program:
        yield from _missing("program", program, place, file, folder)
        path = folder / program
        if path.is_file() and not os.access(path, os.X_OK):
            cause = f"the program {path} is not executable"
            yield _finding(file, place, cause, f"chmod +x {program}", Weight.LOCAL)


def _missing(what: str, given: str, place: Place, file: CampaignFile, folder: Path) -> Iterator[Finding]:
    path = folder / given
    try:
        if path.exists():
            return
        beside = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
    except OSError as error:
        beside = []
        reason = f"cannot be looked at on this machine ({error.strerror})"
    else:
        reason = "is not on this machine"
    close = difflib.get_close_matches(path.name, beside, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    yield _finding(
        file, place, f"the {what} {path} {reason}{hint}", _ELSEWHERE, Weight.LOCAL, remedy_here=_HERE
    )
