"""While a run is cut as it goes, a published file that the disk does not give now is not lost at once."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState, FileChange
from assay_core.records.machine import InstalledDevice, Slot
from assay_sampling.errors import StorageError
from assay_sampling.launches.table import Names
from assay_server.analysis.runs import intact
from assay_server.analysis.runs.intact import RecordsChangedError
from assay_server.campaigns.ingest.publish import Publisher
from assay_server.campaigns.slicing.published import LaunchKinds
from assay_server.store.model import Slice, SliceState
from tests.support.server.ingest_box import Box
from tests.support.server.made_segments import MadeSegment, made_batch, made_schema, packed, packed_names

OPEN = """\
campaign: made
synthetic: {synthetic}
gpus: [V100]
detailed: {{first: auto, slice_launches: 50, sets: features}}
workloads: [{{name: w, command: [train]}}]
"""


class SickDisk:
    """Gives no file whose name is in ``sick``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sick: set[str] = set()
        self._real = intact.hash_of_file
        monkeypatch.setattr(intact, "hash_of_file", self._read)

    def _read(self, path: Path) -> str:
        if path.name in self.sick:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return self._real(path)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SickDisk:
    return SickDisk(monkeypatch)


class OpenRun(Box):
    """A run whose slices of 50 launches follow each other until two bring nothing new."""

    def __init__(self, state: Path) -> None:
        slots = (Slot("0", ("nsight_compute",), True, InstalledDevice(name="V100")),)
        super().__init__(state, synthetic=True, text=OPEN, slots=slots)

    def lease(self, slot: str = "0") -> AttemptKey:
        with self.coordinator.schedule() as schedule:
            [campaign] = schedule.store.campaigns()
            [light] = [run for run in schedule.store.runs(campaign.campaign_id) if run.level == "light"]
            schedule.start_detailed(light, None)
        return super().lease(slot)

    def play(self) -> bool:
        """Make the leased attempt."""
        schema, names = made_schema("detailed", synthetic=True), Names()
        batch = made_batch(schema, 50 * self.key.slice_index, 50, names)
        segment = MadeSegment(0, 50, packed_names(names), packed(schema, [batch]))
        if self.state_of() is not AttemptState.PUBLISHING:
            self.send(segment)
        return self.finish(1, 50)

    def pieces(self) -> list[Slice]:
        with self.coordinator.snapshot() as store:
            return store.slices(self.key.run_id)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[OpenRun]:
    """Two slices are published, and a third one is leased; the server has restarted since."""
    box = OpenRun(tmp_path / "state")
    for _ in range(2):
        assert box.play()
        box.key = box.lease()
    box.restart()
    yield box
    box.close()


def test_what_a_disk_gives_again_is_not_measured_again(box: OpenRun, disk: SickDisk) -> None:
    disk.sick = {Path(piece.file).name for piece in box.pieces()[:2]}
    with pytest.raises(StorageError, match="slice-00000"):
        box.play()
    assert [piece.state for piece in box.pieces()[:2]] == [SliceState.DONE] * 2
    assert box.coordinator.records.all_set_aside() == []
    disk.sick = set()
    assert box.play()
    assert [piece.state for piece in box.pieces()] == [SliceState.DONE] * 3


def test_only_the_file_that_stays_unreadable_is_measured_again(box: OpenRun, disk: SickDisk) -> None:
    now = [0.0]
    box.publisher = Publisher(box.coordinator, seconds=lambda: now[0])
    [first, second] = box.pieces()[:2]
    disk.sick = {Path(first.file).name, Path(second.file).name}
    for now[0] in (0.0, 300.0, 599.0):
        with pytest.raises(StorageError):
            box.play()
    disk.sick = {Path(second.file).name}
    for now[0] in (601.0, 1000.0):
        with pytest.raises(StorageError, match="slice-00001"):  # is read only now
            box.play()
    now[0] = 1202.0
    assert box.play()
    assert [piece.state for piece in box.pieces()[:3]] == [
        SliceState.DONE,
        SliceState.WAITING,
        SliceState.DONE,
    ]
    [aside] = box.coordinator.records.all_set_aside()
    assert aside.names == (f"records/{second.file}",)


def test_a_disk_that_fails_now_and_then_has_its_ten_minutes_each_time(box: OpenRun, disk: SickDisk) -> None:
    now = [0.0]
    kinds = LaunchKinds(box.coordinator.records, lambda: now[0])
    [piece, _] = box.pieces()[:2]
    disk.sick = {Path(piece.file).name}
    for now[0] in (0.0, 599.0, 3600.0, 4100.0):
        with pytest.raises(StorageError, match="ten minutes") as told:
            kinds.of(piece)
        assert not isinstance(told.value, RecordsChangedError)
    now[0] = 4200.0
    with pytest.raises(RecordsChangedError) as lost:
        kinds.of(piece)
    assert [(each.run_id, each.what) for each in lost.value.files] == [(piece.run_id, FileChange.UNREADABLE)]


def test_an_error_of_the_disk_after_the_look_at_the_file_loses_nothing(
    box: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: str) -> object:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr("assay_server.campaigns.slicing.published._kinds", fails)
    with pytest.raises(StorageError, match="EIO"):
        box.play()
    monkeypatch.undo()
    assert box.play()
    assert [piece.state for piece in box.pieces()] == [SliceState.DONE] * 3
