"""Bundles on an agent's disk: fetched once, checked, and no more of them than there is room for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from assay_agent.daemon import bundles as module
from assay_agent.daemon.bundles import BundleCache
from assay_agent.execution.confinement.command import BundledCommand
from assay_agent.execution.confinement.means import Means
from assay_agent.uplink.session import Identity
from assay_core.bundles.packing import pack_bundle
from assay_core.records.attempt import AttemptKey
from assay_core.records.upload import Bundle, BundleWanted
from assay_core.records.work import CommandSource, Work


class Sender:
    """A server's answers. ``asked``: by hash."""

    def __init__(self) -> None:
        self.packed: dict[str, bytes] = {}
        self.asked: list[str] = []

    def bundle(self, wanted: BundleWanted) -> Iterator[bytes]:
        self.asked.append(wanted.sha256)
        yield self.packed[wanted.sha256]


def work_with(bundle: Bundle) -> Work:
    command = BundledCommand.of(CommandSource(argv=("./x",), bundle=bundle), Means("/usr/bin/bwrap"))
    return Work(
        key=AttemptKey("c-1.0000", 0, 1, 1), campaign_id="c-1", workload="w", device_kind="V100",
        level="light", profiler="bare", command=command,
    )  # fmt: skip


def test_the_bundles_used_last_are_kept_as_far_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 25_000)
    sender, sent = Sender(), []
    for number in range(3):
        files = tmp_path / f"files-{number}"
        files.mkdir()
        (files / "x").write_bytes(os.urandom(10_000))  # which nothing compresses
        sent.append(pack_bundle(files, tmp_path / f"packed-{number}"))
        sender.packed[sent[-1].sha256] = (tmp_path / f"packed-{number}").read_bytes()
    cache = BundleCache(tmp_path / "state", cast(Any, sender), Identity("agent", "session"))
    order = (0, 1, 0, 2, 0, 1)
    for seconds, number in enumerate(order):
        found = cache.with_files(work_with(sent[number]), threading.Event()).command
        assert isinstance(found, BundledCommand) and found.packed is not None
        assert found.packed.read_bytes() == sender.packed[sent[number].sha256]
        os.utime(found.packed, (seconds, seconds))
        kept = list((tmp_path / "state" / "bundles").iterdir())
        assert sum(path.stat().st_size for path in kept) <= 25_000
    # The third one pushed out the second, which was used before the first.
    assert sender.asked == [sent[number].sha256 for number in (0, 1, 2, 1)]
