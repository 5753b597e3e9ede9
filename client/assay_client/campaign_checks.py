"""What is doubtful in a campaign file that is valid: GPUs that no agent has, files that are not there.

An agent may run on another box, so a file that is missing here may well be there: whether that is an error
is for the verb to say.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_sampling.errors import CampaignError
from assay_sampling.gpu_names import GPU_NAMES, either, nearest

Place = tuple[str | int, ...]
_CERTAIN = "certain"
_LOCAL = "local"
_DOUBTFUL = "doubtful"
_LONGEST_LIST = 6
_ELSEWHERE = "correct the path, make the file, or see that the agents have it there"
_HERE = "correct the path, or make the file"


@dataclass(frozen=True)
class Finding:
    """Something doubtful: where it stands in the file, the cause in one sentence, and what to do.

    ``weight`` is "certain": no agent could ever run it; "local": nothing here could; "doubtful".
    """

    line: int
    field: str
    cause: str
    remedy: str
    weight: str

    def to_dict(self, file_name: str) -> dict[str, Any]:
        return {
            "file": file_name,
            "line": self.line,
            "field": self.field,
            "cause": self.cause,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Surroundings:
    """What a campaign is looked at with.

    Args:
        line: the line of a place in the file.
        folder: of the file, from which its paths go.
        virtual_gpus: all kinds of virtual GPUs.
        device_key: what counts of the name of a GPU.
    """

    line: Callable[[Place], int]
    folder: Path
    virtual_gpus: Sequence[str]
    device_key: Callable[[str], str]


def look_at(campaign: Any, around: Surroundings) -> list[Finding]:
    """All that is doubtful in a valid campaign (``assay_server.campaigns.spec.Campaign``), by line."""
    found = [*_gpus(campaign, around), *_files(campaign, around)]
    return sorted(found, key=lambda finding: finding.line)


def refuse(findings: Iterable[Finding], file_name: str, *, here: bool) -> None:
    """Raise CampaignError for what is certainly wrong; with ``here``, where all must run on this machine,
    for what is missing here as well."""
    wrong = [f for f in findings if f.weight == _CERTAIN or (here and f.weight == _LOCAL)]
    if wrong:
        first, *others = wrong[:_LONGEST_LIST]
        cause = [f"field {first.field}: {first.cause}"]
        cause += [f"{file_name}:{other.line}: field {other.field}: {other.cause}" for other in others]
        if len(wrong) > _LONGEST_LIST:
            cause.append(f"and {len(wrong) - _LONGEST_LIST} more")
        remedy = _HERE if first.remedy == _ELSEWHERE else first.remedy
        raise CampaignError(f"{file_name}:{first.line}", "\n".join(cause), remedy)


def _gpus(campaign: Any, around: Surroundings) -> Iterator[Finding]:
    names = around.virtual_gpus if campaign.synthetic else GPU_NAMES
    for position, kind in enumerate(campaign.gpus):
        meant = nearest(kind, names, around.device_key)
        if meant is None:
            continue
        place: Place = ("gpus", position)
        hint = f" (did you mean {either(meant)}?)" if meant else ""
        if campaign.synthetic:
            yield Finding(
                around.line(place),
                f"gpus[{position}]",
                f"there is no virtual GPU {kind!r}{hint}",
                f"there are {', '.join(around.virtual_gpus)}",
                _CERTAIN,
            )
        else:
            yield Finding(
                around.line(place),
                f"gpus[{position}]",
                f"no GPU is known that calls itself {kind!r}{hint}, and runs wait until an agent has one",
                "name it in full, as 'assay-agent inventory' on the box does",
                _DOUBTFUL,
            )


def _files(campaign: Any, around: Surroundings) -> Iterator[Finding]:
    for position, workload in enumerate(campaign.workloads):
        place: Place = ("workloads", position)
        if workload.command:
            yield from _program(workload.command[0], (*place, "command", 0), around)
        for number, recording in enumerate(workload.recordings):
            for level in ("light", "detailed"):
                path = getattr(recording, level)
                if path is not None:
                    here = (*place, "recordings", number, level)
                    yield from _missing("recording", path, here, around)


def _program(program: str, place: Place, around: Surroundings) -> Iterator[Finding]:
    """A program with a slash is a file; so is a workload of virtual GPUs. Others are found by the agent."""
    if program.endswith(".toml"):
        yield from _missing("workload file", program, place, around)
    elif "/" in program:
        yield from _missing("program", program, place, around)
        path = around.folder / program
        if path.is_file() and not os.access(path, os.X_OK):
            yield Finding(
                around.line(place), _field(place), f"the program {path} may not be executed",
                f"chmod +x {program}", _LOCAL,
            )  # fmt: skip


def _missing(what: str, given: str, place: Place, around: Surroundings) -> Iterator[Finding]:
    path = around.folder / given
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
    yield Finding(
        around.line(place),
        _field(place),
        f"the {what} {path} {reason}{hint}",
        _ELSEWHERE,
        _LOCAL,
    )


def _field(place: Place) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    return text.removeprefix(".")
