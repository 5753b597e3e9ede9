"""Files of finished measurements as a campaign of one workload: what ``assay import`` submits.

The files are opened first, so that what cannot be read is told at once, by name, and not by a failed run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_client.files import AnyPath
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launch_table import table_metadata
from assay_sampling.readers import ReadOptions, open_recording

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_CONDITIONS = ("cache", "clock", "sm_percent")


@dataclass(frozen=True)
class RecordedRun:
    """Recordings of one workload on one kind of GPU, by level, and whether they are synthetic."""

    files: Mapping[str, Path]
    synthetic: bool


def recorded_run(
    files: Sequence[AnyPath],
    *,
    detailed: AnyPath | None = None,
    light: AnyPath | None = None,
    synthetic: bool = False,
) -> RecordedRun:
    """Open the files and sort them by level.

    Args:
        files: recordings whose level is told by what they hold.
        detailed: a recording that must hold counters.
        light: a recording that must be of a free run.
        synthetic: mark the data as made by no silicon, whatever the files say.

    Raises InputError for a file that cannot be read, ParameterError where a level has no or several files
    or the wrong one, RefusedError where synthetic and measured data would meet.
    """
    given = [(Path(path), "") for path in files]
    given += [(Path(path), level) for path, level in ((detailed, "detailed"), (light, "light")) if path]
    if not given:
        raise ParameterError("FILE", "no file was given", "name a recording, or give --detailed or --light")
    found: dict[str, Path] = {}
    marks: dict[Path, bool] = {}
    options = ReadOptions(synthetic=True if synthetic else None)
    for path, wanted in given:
        with open_recording(path, options) as recording:
            metadata = table_metadata(recording.schema)
        if wanted and metadata.level != wanted:
            raise ParameterError(
                f"--{wanted}", f"{path} is a {metadata.level} recording", f"give it as --{metadata.level}"
            )
        if metadata.level in found:
            raise ParameterError(
                "FILE",
                f"{found[metadata.level]} and {path} are both {metadata.level} recordings",
                "import each by itself: a run has one file of each level",
            )
        found[metadata.level] = path
        marks[path] = metadata.synthetic
    if len(set(marks.values())) > 1:
        marked = next(path for path, mark in marks.items() if mark)
        raise RefusedError(
            str(marked),
            "it is synthetic, and the other recording is measured",
            "never join the two; mark a file that is synthetic with --synthetic",
        )
    return RecordedRun(found, any(marks.values()))


def parse_condition(texts: Sequence[str]) -> dict[str, str | float]:
    """``cache=all`` and the like as a condition; raises ParameterError."""
    condition: dict[str, str | float] = {}
    for text in (part for given in texts for part in given.split(",")):
        name, separator, value = (piece.strip() for piece in text.partition("="))
        if not separator or name not in _CONDITIONS or name in condition:
            raise ParameterError(
                "--condition",
                f"{text!r} is not one of cache=..., clock=..., sm_percent=..., each given once",
                "write --condition cache=all,sm_percent=50",
            )
        try:
            condition[name] = float(value) if name == "sm_percent" else value
        except ValueError:
            raise ParameterError(
                "--condition", f"{value!r} is not a share in percent", "write --condition sm_percent=50"
            ) from None
    return condition


def campaign_text(
    run: RecordedRun,
    *,
    workload: str,
    device: str,
    name: str = "",
    condition: Mapping[str, str | float] | None = None,
) -> str:
    """The campaign file of one recorded run, with absolute paths; ``name`` "" is made from the workload's."""
    campaign = name or _NOT_IN_A_NAME.sub("-", workload).strip("-") or "import"
    recording: dict[str, object] = {"device": device}
    recording |= {level: str(path.resolve()) for level, path in sorted(run.files.items())}
    if condition:
        recording["condition"] = dict(condition)
    # JSON is YAML: every text is quoted, whatever stands in it.
    return (
        f"campaign: {json.dumps(campaign)}\n"
        f"synthetic: {json.dumps(run.synthetic)}\n"
        "workloads:\n"
        f"  - name: {json.dumps(workload)}\n"
        "    recordings:\n"
        f"      - {json.dumps(recording)}\n"
    )
