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
    kept = _fitting(ordered, most_bytes)
    while True:
        manifest = {
            **facts,
            "runs": [_entry(part, run) for part, run in ordered[:kept]],
            "left_out": [
                {"run_id": run["run_id"], "workload": run["workload"], "bytes": _bytes(part, run)}
                for part, run in ordered[kept:]
            ],
        }
        partial = path.with_name(path.name + ".partial")
        _write(partial, measured, ordered[:kept], manifest)
        if partial.stat().st_size <= most_bytes or not kept:
            partial.replace(path)
            return {**manifest, "bytes": path.stat().st_size}
        kept -= 1


def pack_logs(path: Path, work: Path, measured: Sequence[Measured], most_bytes: int = MOST_BYTES) -> None:
    """Write ``path`` (.tar.gz): the programs' logs, and each run with all attempts: what was said and seen.

    Who reads it cannot look at the box any more. Logs are cut in front, at a tenth of ``most_bytes``.
    """
    partial = path.with_name(path.name + ".partial")
    with tarfile.open(partial, "w:gz") as archive:
        for log in sorted(work.glob("*.log")):
            _add(archive, log.name, log.read_bytes()[-most_bytes // 10 :])
        for part in measured:
            document = json.dumps(list(part.runs), default=str).encode()
            _add(archive, f"{part.part}.runs.json", document)
    partial.replace(path)


def _fitting(ordered: Sequence[tuple[Measured, Run]], most_bytes: int) -> int:
    """How many of the runs, smallest first, may fit: records are compressed already, so little is gained."""
    total = 0
    for count, (part, run) in enumerate(ordered):
        total += _bytes(part, run)
        if total > 2 * most_bytes:
            return count
    return len(ordered)


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
