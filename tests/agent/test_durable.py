"""What must be on the disk before what: content before its name, its name before anybody relies on it.

No crash can be made in a test that loses what was not synced, so the calls to the operating system are
recorded in their order.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay_agent.spool.spool import Spool
from assay_core.files import durable
from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.work import Work
from assay_sampling.launches.table import BASELINE
from tests.support.agent.fake_server import batches_of

RUN = "campaign-1.0000-0-1"


class Calls:
    """Records syncs and renames below a folder, as (what, path relative to it)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.made: list[tuple[str, str]] = []
        self._root = root.resolve()
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._synced(name, getattr(os, name)))
        rename = Path.replace

        def replace(source: Path, target: Path) -> Path:
            self._note("rename to", target)
            return rename(source, target)

        monkeypatch.setattr(Path, "replace", replace)

    def _synced(self, name, call):  # type: ignore[no-untyped-def]
        def sync(descriptor: int) -> None:
            self._note(name, Path(f"/proc/self/fd/{descriptor}").readlink())
            call(descriptor)

        return sync

    def _note(self, what: str, path: Path) -> None:
        self.made.append((what, str(path.resolve().relative_to(self._root))))


def half_written(path: str) -> str:
    """The temporary file of a path, relative as it."""
    return str(durable.temporary_of(Path(path)))


def test_a_directory_is_synced_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, tmp_path)
    durable.sync_directory(tmp_path)
    # Not fdatasync: it may leave the entries out, which are all that a directory has.
    assert calls.made == [("fsync", ".")]


def test_an_atomic_write_syncs_content_then_renames_then_syncs_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = Calls(monkeypatch, tmp_path)
    (tmp_path / "folder").mkdir()
    durable.write_atomically(tmp_path / "folder" / "file", b"data")
    assert calls.made == [
        ("fsync", half_written("folder/file")),
        ("rename to", "folder/file"),
        ("fsync", "folder"),
    ]


def test_a_segment_counts_only_once_its_name_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, minimum_free_bytes=0, flush_seconds=0.0)
    calls = Calls(monkeypatch, tmp_path)
    key = AttemptKey("campaign-1.0000", 0, 1, 1)
    attempt = spool.create(
        Work(
            key=key,
            campaign_id="campaign-1",
            workload="w",
            device_kind="V100",
            level="light",
            condition=BASELINE,
            profiler="p",
        )
    )
    assert calls.made == [
        ("fsync", half_written(f"{RUN}/manifest.json")),
        ("rename to", f"{RUN}/manifest.json"),
        ("fsync", RUN),
        ("fsync", "."),  # the attempt's own folder is an entry too
    ]
    calls.made.clear()
    sync_directory, sendable = durable.sync_directory, []

    def watched(path: Path) -> None:
        sendable.append(len(attempt._pending))
        sync_directory(path)

    monkeypatch.setattr(durable, "sync_directory", watched)
    attempt.append(batches_of(50, 50)[0])
    seal = attempt.seal((), AttemptLog())
    spool.close()
    (segment,) = (p.name for p in (tmp_path / RUN).iterdir() if p.name not in ("manifest.json", "seal.json"))
    assert seal.segments == 1
    assert calls.made == [
        ("fdatasync", half_written(f"{RUN}/{segment}")),
        ("rename to", f"{RUN}/{segment}"),
        ("fsync", RUN),
        ("fsync", half_written(f"{RUN}/seal.json")),
        ("rename to", f"{RUN}/seal.json"),
        ("fsync", RUN),
    ]
    assert sendable == [0, 1], "no segment is sent before its directory is synced, and it is for the seal"
