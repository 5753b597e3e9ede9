from __future__ import annotations

import pyarrow as pa
import pytest

from assay_sampling.errors import RefusedError
from assay_sampling.gathering.from_batches import gather
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import LaunchBatch, Names, TableMetadata, launch_schema, make_batch
from assay_server.analysis.runs.held import HeldRuns
from assay_server.analysis.runs.request import RunData


def launches() -> Launches:
    names = Names()
    schema = launch_schema(TableMetadata("light"))
    columns = {"process": [0], "launch": [0], "kernel_id": [names.intern("k")], "grid_x": [1], "block_x": [1]}
    return gather([LaunchBatch(make_batch(schema, columns), dict(names.items()))], schema)


def test_each_run_is_loaded_once_and_counts_against_the_limit() -> None:
    asked: list[tuple[str, int]] = []

    def load(run: RunData, limit: int) -> Launches:
        asked.append((run.run_id, limit))
        return launches()

    held = HeldRuns(load, 10_000)
    first, second = RunData("a", "w", "V100", "light"), RunData("b", "w", "V100", "light")
    assert held.launches(first) is held.launches(first)
    size = held.launches(first).table.nbytes
    held.launches(second)
    assert asked == [("a", 10_000), ("b", 10_000 - size)]
    held.keep_only({"b"})
    held.launches(first)
    assert asked[2] == ("a", 10_000 - size)


def test_a_run_that_cannot_be_loaded_is_tried_once() -> None:
    tries = []

    def load(run: RunData, limit: int) -> Launches:
        tries.append(run.run_id)
        raise RefusedError("run a", "damaged")

    held = HeldRuns(load, 1)
    run = RunData("a", "w", "V100", "light")
    for _ in range(2):
        with pytest.raises(RefusedError, match="damaged"):
            held.launches(run)
    assert tries == ["a"]


def test_faults_of_the_program_are_not_kept() -> None:
    def load(run: RunData, limit: int) -> Launches:
        raise pa.ArrowInvalid("a fault")

    with pytest.raises(pa.ArrowInvalid):
        HeldRuns(load, 1).launches(RunData("a", "w", "V100", "light"))


def limited(run: RunData, limit: int) -> Launches:
    found = launches()
    if found.table.nbytes > limit:
        raise RefusedError(f"run {run.run_id}", "memory limit")
    return found


def test_a_run_for_which_memory_was_short_is_tried_again_once_others_are_freed() -> None:
    """A repeat that did not fit beside the levels of a selection can still be compared with others later."""
    held = HeldRuns(limited, launches().table.nbytes)
    first, second = RunData("a", "w", "V100", "light"), RunData("b", "w", "V100", "light")
    held.launches(first)
    for _ in range(2):
        with pytest.raises(RefusedError, match="memory limit"):
            held.launches(second)
    held.keep_only(set())
    assert len(held.launches(second)) == 1


def test_spare_runs_are_freed_before_another_run_is_refused() -> None:
    """Repeats of a light run only make its times more certain: a level that a method needs comes first."""
    held = HeldRuns(limited, 2 * launches().table.nbytes)
    a, b, c, d = (RunData(name, "w", "V100", "light") for name in "abcd")
    held.launches(a)
    repeat = held.spare_launches(b)
    assert held.spare_launches(b) is repeat
    # A spare run frees no other one.
    with pytest.raises(RefusedError, match="memory limit"):
        held.spare_launches(c)
    assert len(held.launches(c)) == 1
    with pytest.raises(RefusedError, match="memory limit"):
        held.launches(d)
