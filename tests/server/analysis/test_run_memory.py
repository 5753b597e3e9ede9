from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from assay_sampling.errors import RefusedError
from assay_sampling.gathering.from_batches import gather
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.table import LaunchBatch, Names, TableMetadata, launch_schema, make_batch
from assay_server.analysis import run_memory as memory_module
from assay_server.analysis.run_memory import RunMemory
from assay_server.analysis.runs.request import AnalysisRequest, RunData

Load = Callable[[RunData, int], Launches]


@pytest.fixture
def run_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[Load, int], RunMemory]:
    def made(load: Load, limit: int) -> RunMemory:
        monkeypatch.setattr(memory_module, "load_run", load)
        return RunMemory(AnalysisRequest("c-1", "c", memory_limit_bytes=limit))

    return made


RunMemories = Callable[[Load, int], RunMemory]


def launches() -> Launches:
    names = Names()
    schema = launch_schema(TableMetadata("light"))
    columns = {"process": [0], "launch": [0], "kernel_id": [names.intern("k")], "grid_x": [1], "block_x": [1]}
    return gather([LaunchBatch(make_batch(schema, columns), dict(names.items()))], schema)


def test_each_run_is_loaded_once_and_counts_against_the_limit(run_memory: RunMemories) -> None:
    asked: list[tuple[str, int]] = []

    def load(run: RunData, limit: int) -> Launches:
        asked.append((run.run_id, limit))
        return launches()

    memory = run_memory(load, 10_000)
    first, second = RunData("a", "w", "V100", "light"), RunData("b", "w", "V100", "light")
    assert memory.launches(first) is memory.launches(first)
    size = memory.launches(first).table.nbytes
    memory.launches(second)
    assert asked == [("a", 10_000), ("b", 10_000 - size)]
    memory.keep_only({"b"})
    memory.launches(first)
    assert asked[2] == ("a", 10_000 - size)


def test_a_run_that_cannot_be_loaded_is_tried_once(run_memory: RunMemories) -> None:
    tries = []

    def load(run: RunData, limit: int) -> Launches:
        tries.append(run.run_id)
        raise RefusedError("run a", "damaged")

    memory = run_memory(load, 1)
    run = RunData("a", "w", "V100", "light")
    for _ in range(2):
        with pytest.raises(RefusedError, match="damaged"):
            memory.launches(run)
    assert tries == ["a"]


def test_faults_of_the_program_are_not_kept(run_memory: RunMemories) -> None:
    def load(run: RunData, limit: int) -> Launches:
        raise pa.ArrowInvalid("a fault")

    with pytest.raises(pa.ArrowInvalid):
        run_memory(load, 1).launches(RunData("a", "w", "V100", "light"))


def limited(run: RunData, limit: int) -> Launches:
    found = launches()
    if found.table.nbytes > limit:
        raise RefusedError(f"run {run.run_id}", "memory limit")
    return found


def test_a_run_for_which_memory_was_short_is_tried_again_once_others_are_freed(
    run_memory: RunMemories,
) -> None:
    """A repeat that did not fit beside the levels of a selection can still be compared with others later."""
    memory = run_memory(limited, launches().table.nbytes)
    first, second = RunData("a", "w", "V100", "light"), RunData("b", "w", "V100", "light")
    memory.launches(first)
    for _ in range(2):
        with pytest.raises(RefusedError, match="memory limit"):
            memory.launches(second)
    memory.keep_only(set())
    assert len(memory.launches(second)) == 1


def test_spare_runs_are_freed_before_another_run_is_refused(run_memory: RunMemories) -> None:
    """Repeats of a light run only make its times more certain: a level that a method needs comes first."""
    memory = run_memory(limited, 2 * launches().table.nbytes)
    a, b, c, d = (RunData(name, "w", "V100", "light") for name in "abcd")
    memory.launches(a)
    repeat = memory.spare_launches(b)
    assert memory.spare_launches(b) is repeat
    # A spare run frees no other one.
    with pytest.raises(RefusedError, match="memory limit"):
        memory.spare_launches(c)
    assert len(memory.launches(c)) == 1
    with pytest.raises(RefusedError, match="memory limit"):
        memory.launches(d)
