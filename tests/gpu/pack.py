"""The recordings of a proof in one small archive, with what a reader must know of them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.claims import Measured, Run, last_attempt

MOST_BYTES = 5_000_000
_SHOWN = ("run_id", "workload", "device_kind", "level", "condition", "repeat", "launches", "flags", "files")


def pack_recordings(
    path: Path, measured: Sequence[Measured], facts: Mapping[str, Any], most_bytes: int = MOST_BYTES
) -> dict[str, Any]:
    """Write ``path`` (.tar.gz): records as Parquet, reports, and ``manifest.json``; the manifest.

    Where all do not fit, the largest runs are left out, and named in the manifest.

    Args:
        path: the archive.
        measured: what the parts brought.
        facts: GPU, driver, date, versions, and the mark of synthetic data.
        most_bytes: size of the archive at most.
    """
    ordered = sorted(
        ((part, run) for part in measured for run in part.runs if run["files"]),
        key=lambda item: (_bytes(*item), item[1]["run_id"]),
    )
    kept = len(ordered)
    while True:
        manifest = {
            **facts,
            "runs": [_entry(part, run) for part, run in ordered[:kept]],
            "left_out": [
                {"run_id": run["run_id"], "workload": run["workload"], "bytes": _bytes(part, run)}
                for part, run in ordered[kept:]
            ],
        }
        _write(path, measured, ordered[:kept], manifest)
        if path.stat().st_size <= most_bytes or not kept:
            return {**manifest, "bytes": path.stat().st_size}
        kept -= 1


def _write(
    path: Path,
    measured: Sequence[Measured],
    kept: Sequence[tuple[Measured, Run]],
    manifest: Mapping[str, Any],
) -> None:
    with tarfile.open(path, "w:gz") as archive:
        _add(archive, "manifest.json", json.dumps(manifest, indent=1, sort_keys=True).encode())
        for part in measured:
            _add(archive, f"{part.part}.report.json", json.dumps(part.report).encode())
        for part, run in sorted(kept, key=lambda item: item[1]["run_id"]):
            for name in run["files"]:
                _add(archive, name, (part.records / name).read_bytes())


def _entry(part: Measured, run: Run) -> dict[str, Any]:
    telemetry = last_attempt(run).get("telemetry") or {}
    shown = {key: run[key] for key in _SHOWN}
    return {
        **shown,
        "part": part.part,
        "command": last_attempt(run).get("command"),
        "telemetry": {key: value for key, value in telemetry.items() if key != "series"},
    }


def _bytes(part: Measured, run: Run) -> int:
    return sum((part.records / name).stat().st_size for name in run["files"])


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
