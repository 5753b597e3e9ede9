"""Turns finished measurements into a campaign of one workload, which ``assay import`` submits.

The files are opened first, so that an unreadable one is reported at once, by name, and not by a failed run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_client.files import AnyPath
from assay_core.processes.tool_exports import export_report
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.launches.levels import refuse_other_devices
from assay_sampling.launches.table import TableMetadata, table_metadata
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import open_recording
from assay_sampling.running.gpu_names import either, stands_for, unknown
from assay_sampling.running.identity import Device, device_key

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_CONDITIONS = ("cache", "clock", "sm_percent", "sm_share")


@dataclass(frozen=True)
class RecordedRun:
    """Recordings of one workload on one kind of GPU, by level, whether they are synthetic, and their GPUs."""

    files: Mapping[str, Path]
    synthetic: bool
    devices: tuple[Device, ...] = ()


def recorded_run(
    files: Sequence[AnyPath],
    *,
    detailed: AnyPath | None = None,
    light: AnyPath | None = None,
    synthetic: bool = False,
) -> RecordedRun:
    """Open the files and sort them by level.

    Args:
        files: recordings whose level follows from their contents.
        detailed: a recording that must hold counters.
        light: a recording that must be of a free run.
        synthetic: mark the data as not measured on silicon, even if the files do not say so.

    Raises InputError for a file that cannot be read, ParameterError if a level has no or several files
    or the wrong one, RefusedError if synthetic and measured data or two kinds of GPU would be mixed.
    """
    inputs = [(Path(path), "") for path in files]
    inputs += [(Path(path), level) for path, level in ((detailed, "detailed"), (light, "light")) if path]
    if not inputs:
        raise ParameterError("FILE", "no file was given", "name a recording, or give --detailed or --light")
    path_by_level: dict[str, Path] = {}
    opened: dict[Path, TableMetadata] = {}
    options = ReadOptions(synthetic=True if synthetic else None, export=export_report, operations=False)
    for path, expected_level in inputs:
        with open_recording(path, options) as recording:
            metadata = table_metadata(recording.schema)
        if expected_level and metadata.level != expected_level:
            raise ParameterError(
                f"--{expected_level}",
                f"{path} is a {metadata.level} recording",
                f"give it as --{metadata.level}",
            )
        if metadata.level in path_by_level:
            raise ParameterError(
                "FILE",
                f"{path_by_level[metadata.level]} and {path} are both {metadata.level} recordings",
                "import each by itself: a run has one file of each level",
            )
        path_by_level[metadata.level] = path
        opened[path] = metadata
    simulated = [path for path, metadata in opened.items() if metadata.simulated]
    if simulated:
        raise RefusedError(
            str(simulated[0]),
            "it is a simulator's run, and campaigns hold runs on GPUs",
            "score a selection on it with: assay evaluate SELECTION FILE",
        )
    marked = [path for path, metadata in opened.items() if metadata.synthetic]
    if 0 < len(marked) < len(opened):
        raise RefusedError(
            str(marked[0]),
            "it is synthetic, and the other recording is measured",
            "never join the two; mark a file that is synthetic with --synthetic",
        )
    devices = tuple(metadata.devices for metadata in opened.values())
    if len(devices) > 1:
        refuse_other_devices(" and ".join(map(str, opened)), *devices)
    return RecordedRun(
        path_by_level, bool(marked), tuple(dict.fromkeys(d for of_file in devices for d in of_file))
    )


def check_kind(kind: str, run: RecordedRun) -> None:
    """Check that recordings can be of the GPU called ``kind``.

    Known names are those in :mod:`assay_sampling.running.gpu_names`, their families ("V100"), and the names
    in the recordings themselves.

    Raises ParameterError for an unknown name, RefusedError if the recordings name another GPU.
    """
    named = list(dict.fromkeys(device.name for device in run.devices if device.name))
    if any(device_key(name) == device_key(kind) for name in named):
        return
    meant = unknown(kind)
    if meant is not None:
        names = named or meant
        hint = f"; did you mean {either(names)}?" if names else ""
        raise ParameterError(
            "--device",
            f"no known GPU is called {kind!r}{hint}",
            "name it as nvidia-smi does, or by its family, such as V100 or A100",
        )
    if named and not any(stands_for(kind, name) for name in named):
        raise RefusedError(
            "--device",
            f"{kind!r} is given, and {', '.join(str(path) for path in run.files.values())} was recorded on "
            f"{', '.join(named)}",
            "name the GPU that the recordings are of",
        )


def parse_condition(texts: Sequence[str]) -> dict[str, str | float]:
    """``cache=all`` and the like as a condition; raises ParameterError."""
    condition: dict[str, str | float] = {}
    for text in (part for entry in texts for part in entry.split(",")):
        name, separator, value = (piece.strip() for piece in text.partition("="))
        if not separator or name not in _CONDITIONS or name in condition:
            raise ParameterError(
                "--condition",
                f"{text!r} is not one of cache=..., clock=..., sm_percent=..., sm_share=..., each given once",
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
    # JSON is YAML: quoting every text makes its contents safe.
    return (
        f"campaign: {json.dumps(campaign)}\n"
        f"synthetic: {json.dumps(run.synthetic)}\n"
        "workloads:\n"
        f"  - name: {json.dumps(workload)}\n"
        "    recordings:\n"
        f"      - {json.dumps(recording)}\n"
    )
