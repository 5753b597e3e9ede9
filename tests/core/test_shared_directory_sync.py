"""Threads that wait for one directory share a sync, but only one that began after they asked."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from assay_core.files import durable

CALLERS = 8


class Disk:
    """Counts moments, and when each sync began and ended; the first waits for ``go``."""

    def __init__(self) -> None:
        self.moments = itertools.count()
        self.syncs: list[tuple[int, int]] = []
        self.begun, self.go = threading.Event(), threading.Event()

    def fsync(self, _descriptor: int) -> None:
        began = next(self.moments)
        self.begun.set()
        self.go.wait(30)
        self.syncs.append((began, next(self.moments)))


def waits_for_the_directory(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name == "sync_directory"


def test_many_callers_share_a_sync_that_began_after_they_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, calls = Disk(), list[tuple[int, int]]()
    monkeypatch.setattr(os, "fsync", disk.fsync)

    def call() -> None:
        asked = next(disk.moments)
        durable.sync_directory(tmp_path)
        calls.append((asked, next(disk.moments)))

    threads = [threading.Thread(target=call) for _ in range(1 + CALLERS)]
    threads[0].start()
    assert disk.begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    until = time.monotonic() + 30
    while not all(map(waits_for_the_directory, threads[1:])) and time.monotonic() < until:
        time.sleep(0.01)
    disk.go.set()
    for thread in threads:
        thread.join(30)

    assert len(calls) == 1 + CALLERS
    for asked, returned in calls:
        assert any(asked < began and ended < returned for began, ended in disk.syncs)
    assert len(disk.syncs) < CALLERS


def test_after_a_sync_that_failed_the_next_caller_syncs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(5, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="input/output"):
                durable.sync_directory(tmp_path)
    durable.sync_directory(tmp_path)
    with pytest.raises(FileNotFoundError):
        durable.sync_directory(tmp_path / "gone")
