"""Traces of a tracer that missed launches: found by kernel, shapes and order where that leaves one way."""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest

from assay_sampling.errors import MisalignedError
from assay_sampling.handover.comparing.realignment import assignments
from assay_sampling.handover.isolated import IsolatedLaunch, isolated_launches
from assay_sampling.handover.target import Inputs
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.notes.registry import Note
from assay_sampling.scoring.saved_selection import SavedSelection
from tests.support.sampling.accel_sim_traces import Listed, write_listed
from tests.support.sampling.made_launches import made_launches


def every_way(places: list[list[int]], gaps: list[int]) -> list[list[int]]:
    """All ways, each tried."""
    most = max((each[-1] for each in places if each), default=-1) + 1
    return [
        list(way)
        for way in combinations(range(most), len(places))
        if all(one in of for one, of in zip(way, places, strict=True))
        and all(b - a <= gap for (a, b), gap in zip(pairwise(way), gaps, strict=True))
    ]


def test_the_first_and_the_last_way_are_those_of_all_ways() -> None:
    random = np.random.default_rng(7)
    none = 0
    for _ in range(300):
        count = int(random.integers(1, 5))
        places = [np.flatnonzero(random.random(8) < 0.5) for _ in range(count)]
        gaps = random.integers(1, 5, count - 1).tolist()
        ways = every_way([each.tolist() for each in places], gaps)
        found = assignments(places, gaps)
        none += found is None
        assert (found is None) == (not ways)
        if found is not None:
            assert found.first.tolist() == [min(way[at] for way in ways) for at in range(count)]
            assert found.last.tolist() == [max(way[at] for way in ways) for at in range(count)]
    assert 0 < none < 300


class Workload:
    """Launches of kernels called by a letter each, of which the tracer missed those in capitals."""

    def __init__(self, folder: Path, letters: str, selected: list[int]) -> None:
        kernels = [f"_Z1{letter.lower()}Pf" for letter in letters]
        self.recording: Launches = made_launches(kernels, duration_ns=range(1, len(letters) + 1))
        made = registry.select("random", Profile(light=self.recording), {"launches": len(selected)})
        document = made.document().to_dict()
        document["groups"][0]["representatives"] = [
            {
                **document["groups"][0]["representatives"][0],
                "launch": at,
                "sim_id": at + 1,
                "kernel": kernels[at],
            }
            for at in selected
        ]
        self.selection = SavedSelection.read(document, "selection.json")
        traced = [name for name, letter in zip(kernels, letters, strict=True) if letter.islower()]
        block = tuple(self.selection.block[0].tolist())
        grid = tuple(self.selection.grid[0].tolist())
        self.traces = write_listed(folder, [Listed(i, name, grid, block) for i, name in enumerate(traced, 1)])

    def isolated(
        self, *, by_recording: bool, warm_up: bool = False
    ) -> tuple[list[IsolatedLaunch], tuple[Note, ...]]:
        recording = self.recording if by_recording else None
        given = Inputs(Path("selection.json"), traces=self.traces, recording=recording)
        return isolated_launches(self.selection, given, "whole" if warm_up else "none")


@pytest.mark.parametrize(
    ("letters", "selected", "traces", "by_recording"),
    [
        ("abXcdYe", [0, 3, 6], [1, 3, 5], False),
        ("abXcdYe", [0, 3, 6], [1, 3, 5], True),
        ("abcXabcXabc", [0, 5, 10], [1, 5, 9], True),  # without the recording, b may be that of any round
        ("aaXb", [0, 3], [1, 3], True),
        ("abcXYZ", [0, 2], [1, 3], True),  # the tracer was ended: the traces are the first launches
        ("abcabC", [1, 3], [2, 4], False),
    ],
)  # fmt: skip
def test_launches_are_found_where_there_is_one_way(
    tmp_path: Path, letters: str, selected: list[int], traces: list[int], by_recording: bool
) -> None:
    launches, notes = Workload(tmp_path, letters, selected).isolated(by_recording=by_recording)
    assert [each.launch for each in launches] == selected
    assert [each.traced_id for each in launches] == traces
    assert [each.trace.name for each in launches] == [f"kernel-{number}.traceg" for number in traces]
    shifts = [launch + 1 - trace for launch, trace in zip(selected, traces, strict=True)]
    told = [dict(note.parameters) for note in notes if note.code == "launch_ids_realigned"]
    assert [(each["moved"], each["most"]) for each in told] == (
        [(sum(shift > 0 for shift in shifts), max(shifts))] if any(shifts) else []
    )


@pytest.mark.parametrize(
    ("letters", "selected", "by_recording", "words"),
    [
        # Two launches of a kernel, of which either may be the selected one.
        ("Xbaacd", [2, 4], False, "launch 3 ('_Z1aPf') may be any of 2 traces"),
        ("XaaAb", [1, 4], True, "launch 2 ('_Z1aPf') may have no trace"),
        ("aXbb", [1, 3], True, "launch 2 ('_Z1xPf') has no trace"),
    ],
)  # fmt: skip
def test_launches_that_may_be_several_traces_are_refused_by_name(
    tmp_path: Path, letters: str, selected: list[int], by_recording: bool, words: str
) -> None:
    workload = Workload(tmp_path, letters, selected)
    with pytest.raises(MisalignedError) as caught:
        workload.isolated(by_recording=by_recording)
    assert words in str(caught.value)
    assert caught.value.differences[0].startswith(words.partition(" may")[0].partition(" has")[0])
    assert ("--recording" in caught.value.remedy) == (not by_recording)


def test_traces_of_launches_that_the_recording_lacks_are_refused(tmp_path: Path) -> None:
    workload = Workload(tmp_path, "abcXd", [0, 4])
    write_listed(tmp_path, [Listed(n, f"_Z1{k}Pf") for n, k in enumerate("abdc", 1)])
    with pytest.raises(MisalignedError, match="of another workload than the recording"):
        workload.isolated(by_recording=True)


def test_the_launch_before_is_replayed_where_it_is_known(tmp_path: Path) -> None:
    workload = Workload(tmp_path, "aXbcd", [3])
    (launch,), _ = workload.isolated(by_recording=True, warm_up=True)
    assert launch.replay is not None
    assert (launch.trace.name, launch.replay.trace.name) == ("kernel-3.traceg", "kernel-2.traceg")
    with pytest.raises(MisalignedError, match="to replay have no trace"):
        workload.isolated(by_recording=False, warm_up=True)
