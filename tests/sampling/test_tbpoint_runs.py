"""TBPoint within the launches of recorded simulator runs (block times of a simulator, of synthetic traces).

Exact numbers, so that a change of the state machine is seen. docs/methods/tbpoint.md says what they teach:
launches of few waves save nothing, and two units that agree do not prove that the caches are warm.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.sampling.tbpoint_runs import SampledRun, sample_run, table_lines

RUNS = {
    # By block times alone, then with the simulator's own instruction count: skipped %, error %, speedup.
    ("vecadd_k5.20sm", 1): ((160, 1), (81.4, 0.58, 5.79), (89.3, -37.53, 10.53)),
    ("vecadd.base", 5): ((640, 1), (64.1, 5.32, 2.24), (64.1, 5.82, 2.24)),
    ("fma_k4.20sm", 1): ((320, 1), (50.0, 6.26, 1.77), (29.7, 6.91, 1.26)),
    ("fma.base", 4): ((1280, 1), (0.0, 0.0, 1.0), (0.0, 0.0, 1.0)),
    ("twophase_k3.20sm", 1): ((320, 2), (36.6, 0.27, 1.15), (20.0, -0.12, 1.07)),
    ("twophase.base", 3): ((1280, 2), (0.0, 0.0, 1.0), (0.0, 0.0, 1.0)),
}


# One worker runs the whole module: its fixtures take long.
pytestmark = pytest.mark.xdist_group("tbpoint_runs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.mark.shared_data
@pytest.mark.parametrize(("run", "launch"), RUNS)
def test_recorded_block_times(shared_data: Path, folder: Path, run: str, launch: int) -> None:
    sampled = sample_run(shared_data, folder, run, launch)
    (resident, regions), *expected = RUNS[run, launch]
    assert (sampled.resident, sampled.regions) == (resident, regions)
    for sample, numbers in zip(
        (sampled.by_block_times, sampled.by_counted_instructions), expected, strict=True
    ):
        found = (
            100 * sample.skipped_instructions_share, sample.signed_error_percent, sample.speedup
        )  # fmt: skip
        assert found == pytest.approx(numbers, abs=0.06)
        # Sane whatever the numbers are: no more than all but two waves, and never slower than in full.
        assert len(sample.skipped_blocks) <= max(0, sampled.blocks - 2)
        assert 1 <= sample.speedup < 20
        assert np.isfinite(sample.projected_cycles)


def test_the_table() -> None:
    from assay_sampling.projection.tbpoint.replay import LaunchSample  # noqa: PLC0415

    sample = LaunchSample(200.0, 100.0, 190.0, np.array([3]), 0.25)
    run = SampledRun("a.base", 1, 4, 2, 1, sample, sample)
    assert list(table_lines([run]))[2] == (
        "| a.base | 1 | 4 | 2 | 1 | 25.0 | -5.00 | 2.00 | 25.0 | -5.00 | 2.00 |"
    )
