"""Flags on the server: what makes a run worth another try, and what only its slices together tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import CommandSource
from assay_sampling.running.validity import FLAGS
from assay_server.campaigns.analysing.request_builder import capture_flags
from assay_server.campaigns.scheduling.attempt_results import FinishOutcome, SegmentOutcome
from assay_server.store.model import Slice, SliceState
from tests.support.server.desk import Desk

THROTTLED = (ValidityFlag("throttled_thermal", "software_thermal in 3 of 40 samples", True),)


def finish(desk: Desk, key: AttemptKey, flags: tuple[ValidityFlag, ...]) -> FinishOutcome:
    assert desk.segment(key) is SegmentOutcome.ADDED
    return desk.begin(key, flags=flags)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.register()
    return desk


def make_live(desk: Desk) -> None:
    with desk.store.transaction() as store:
        for run in store.runs("made-1"):
            store.save_run(replace(run, command=CommandSource(("app",))))


def test_a_throttled_run_is_tried_again_and_the_last_try_keeps_its_launches_and_flag(desk: Desk) -> None:
    make_live(desk)
    for number in (1, 2):
        key = desk.must_lease(slot=str(number - 1))  # what failed in one slot is left to the other
        assert (key.run_id, key.attempt) == ("made-1.0000", number)
        assert finish(desk, key, THROTTLED) is FinishOutcome.NOT_WANTED
        why = desk.attempt(key).failure
        assert why is not None
        assert (why.failure_class, why.retryable) == ("throttled", True)
        assert "software_thermal in 3 of 40 samples" in why.cause
        assert why.remedy == FLAGS["throttled_thermal"].remedy
        desk.clock.ms += 1000
    last = desk.must_lease()
    assert finish(desk, last, THROTTLED) is FinishOutcome.PUBLISH
    assert desk.end(last)
    with desk.store.snapshot() as read:
        run = read.run("made-1.0000")
    assert run is not None
    assert THROTTLED[0] in run.flags


def test_a_recording_is_always_the_same_so_its_flags_give_no_other_try(desk: Desk) -> None:
    key = desk.must_lease()
    dropped = (ValidityFlag("launches_dropped", "3 of 10", True),)
    assert finish(desk, key, dropped) is FinishOutcome.PUBLISH


@pytest.mark.parametrize("name", [kind.name for kind in FLAGS.values() if kind.scope == "run"])
def test_only_flags_that_a_retry_can_mend_give_one(name: str, desk: Desk) -> None:
    make_live(desk)
    outcome = finish(desk, desk.must_lease(), (ValidityFlag(name, "why", FLAGS[name].invalidates),))
    again = FLAGS[name].retry_as is not None
    assert outcome is (FinishOutcome.NOT_WANTED if again else FinishOutcome.PUBLISH)


def slices(*launches: int, count: int = 10) -> list[Slice]:
    done = SliceState.DONE
    return [
        Slice("r", i, i * count, count, done, launches=number, file="f" if number else "")
        for i, number in enumerate(launches)
    ]


@pytest.mark.parametrize(
    ("launches", "names"),
    [
        ((10, 10, 10), []),
        ((10, 4, 0), []),
        ((10, 0, 10), ["empty_capture"]),
        ((0, 0, 3), ["empty_capture"]),
        ((10, 4, 10), ["slice_gap"]),
        ((4, 0, 1), ["empty_capture", "slice_gap"]),
        ((), []),
    ],
)
def test_a_hole_between_slices_is_flagged_and_the_end_of_a_workload_is_not(
    launches: tuple[int, ...], names: list[str]
) -> None:
    found = list(capture_flags(slices(*launches)))
    assert [flag.name for flag in found] == names
    assert all(flag.invalidates for flag in found)


def test_the_detail_names_the_slices() -> None:
    [flag] = capture_flags(slices(10, 4, 10))
    assert flag.detail == "slice 1 has 4 of 10 launches, and slice 2 has some"
    assert list(capture_flags([Slice("r", 0, 0, 0, launches=7)])) == []


def test_a_bare_run_is_published_without_a_launch_and_a_light_one_is_not(desk: Desk) -> None:
    make_live(desk)
    with desk.store.transaction() as store:
        run = store.run("made-1.0000")
        assert run is not None
        store.save_run(replace(run, level="bare"))
    bare, light = desk.must_lease(), desk.must_lease(slot="1")
    assert [bare.run_id, light.run_id] == ["made-1.0000", "made-1.0001"]
    assert desk.begin(bare, segments=0, launches=0) is FinishOutcome.PUBLISH
    assert desk.end(bare, launches=0)
    assert desk.begin(light, segments=0, launches=0) is FinishOutcome.NOT_WANTED
