"""A window over the launches of a page: what is left out, over any number of batches."""

from __future__ import annotations

import pytest

from assay_agent.profilers.ncu.launch_window import LaunchWindow
from assay_sampling.launches.checks import referenced_ids
from assay_sampling.launches.table import LaunchBatch, Names
from tests.support.agent.fake_server import batches_of


@pytest.mark.parametrize("batch_launches", [1, 3, 4, 7, 30])
@pytest.mark.parametrize("before", [0, 1, 3, 4, 6, 11, 29, 30, 31])
def test_the_first_launches_are_left_out_once_over_all_batches(before: int, batch_launches: int) -> None:
    batches = batches_of(30, batch_launches)
    assert len(batches) == -(-30 // batch_launches)
    every = [value for batch in batches for value in batch.records.column("launch").to_pylist()]
    window, kept = LaunchWindow(before), list[LaunchBatch]()
    for batch in batches:
        kept += window.part(batch)
    shown = [value for batch in kept for value in batch.records.column("launch").to_pylist()]
    assert shown == every[before:]
    assert all(batch.records.num_rows for batch in kept)
    _each_name_comes_once_and_before_its_use(kept)


def _each_name_comes_once_and_before_its_use(kept: list[LaunchBatch]) -> None:
    names = Names()
    for batch in kept:
        assert not set(batch.new_names) & {identifier for identifier, _ in names.items()}
        names.update(batch.new_names)
        used = referenced_ids(batch.records).tolist()
        assert all(identifier in names for identifier in used)
        assert set(batch.new_names) <= set(used)
