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
from assay_server.campaign_file.messages import field_path
from assay_server.campaign_file.reading import CampaignFile
from assay_server.campaign_file.spec import Campaign
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

    place: Place
    cause: str
    remedy: str
    weight: Weight
    remedy_here: str = ""

    @property
    def field(self) -> str:
        return field_path(self.place)


@dataclass(frozen=True)
class Findings:
    """All doubtful entries of a valid campaign file, by line."""

    file: CampaignFile
    findings: tuple[Finding, ...]

    def to_documents(self) -> list[dict[str, Any]]:
        """Each as "file", "line", "field", "cause", "remedy"."""
        return [
            {
                "file": self.file.name,
                "line": self.file.line(finding.place),
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
            where = {finding.place: f"{self.file.name}:{self.file.line(finding.place)}" for finding in wrong}
            cause = [f"field {first.field}: {first.cause}"]
            cause += [f"{where[other.place]}: field {other.field}: {other.cause}" for other in others]
            if len(wrong) > _LONGEST_LIST:
                cause.append(f"and {len(wrong) - _LONGEST_LIST} more")
            raise CampaignError(where[first.place], "\n".join(cause), first.remedy_here or first.remedy)


def look_at(file: CampaignFile, folder: Path, virtual_gpus: Sequence[str]) -> Findings:
    """All doubtful entries of a valid campaign file.

    Args:
        file: the campaign file.
        folder: the file's folder; relative paths start there.
        virtual_gpus: all kinds of virtual GPUs.
    """
    campaign = file.campaign
    findings = [*_gpus(campaign, virtual_gpus), *_files(campaign, folder), *_bundles(campaign, folder)]
    return Findings(file, tuple(sorted(findings, key=lambda finding: file.line(finding.place))))


def _gpus(campaign: Campaign, virtual_gpus: Sequence[str]) -> Iterator[Finding]:
    names = virtual_gpus if campaign.synthetic else GPU_NAMES
    for position, kind in enumerate(campaign.gpus):
        meant = nearest(kind, names, device_key)
        if meant is None:
            continue
        place: Place = ("gpus", position)
        hint = f" (did you mean {either(meant)}?)" if meant else ""
        if campaign.synthetic:
            cause, remedy = f"there is no virtual GPU {kind!r}{hint}", f"there are {', '.join(virtual_gpus)}"
            yield Finding(place, cause, remedy, Weight.CERTAIN)
        else:
            cause = f"no known GPU is called {kind!r}{hint}, and runs wait until an agent has one"
            remedy = "name it in full, as 'assay-agent inventory' on the box does"
            yield Finding(place, cause, remedy, Weight.DOUBTFUL)


def _files(campaign: Campaign, folder: Path) -> Iterator[Finding]:
    for position, workload in enumerate(campaign.workloads):
        place: Place = ("workloads", position)
        if workload.command and workload.bundle is None:
            yield from _program(workload.command[0], (*place, "command", 0), folder)
        for number, recording in enumerate(workload.recordings):
            for level, path in reversed(list(recording.levels())):
                yield from _missing("recording", path, (*place, "recordings", number, level), folder)


def _bundles(campaign: Campaign, folder: Path) -> Iterator[Finding]:
    """Folders whose files cannot be sent: they are sent from the machine of whoever submits, so from here."""
    for position, workload in enumerate(campaign.workloads):
        if workload.bundle is None:
            continue
        try:
            entries_of(folder / workload.bundle)
        except InputError as error:
            cause = f"its files cannot be sent: {error.subject}: {error.cause}"
            yield Finding(("workloads", position, "bundle"), cause, error.remedy, Weight.CERTAIN)


def _program(program: str, place: Place, folder: Path) -> Iterator[Finding]:
    """A program with a slash is a file, and so is a workload of virtual GPUs; the agent finds others."""
    if program.endswith(".toml"):
        yield from _missing("workload file", program, place, folder)
    elif "/" in program:
        yield from _missing("program", program, place, folder)
        path = folder / program
        if path.is_file() and not os.access(path, os.X_OK):
            cause = f"the program {path} is not executable"
            yield Finding(place, cause, f"chmod +x {program}", Weight.LOCAL)


def _missing(what: str, name: str, place: Place, folder: Path) -> Iterator[Finding]:
    path = folder / name
    try:
        if path.exists():
            return
        beside = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
        reason = "is not on this machine"
    except OSError as error:
        beside = []
        reason = f"cannot be looked at on this machine ({error.strerror})"
    close = difflib.get_close_matches(path.name, beside, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    yield Finding(place, f"the {what} {path} {reason}{hint}", _ELSEWHERE, Weight.LOCAL, _HERE)
