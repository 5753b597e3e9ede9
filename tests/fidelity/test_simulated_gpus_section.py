"""The section of simulated GPUs, short: weights by light time on logs of a real simulator."""

from __future__ import annotations

from pathlib import Path

from tests.fidelity import simulated_gpus
from tests.fidelity.section import Effort


def test_light_time_brings_group_errors_down_on_other_simulated_gpus(shared_data: Path) -> None:
    found = simulated_gpus.section(Effort.SHORT)
    assert not found.missed
    given = {(row[1], row[2]): [float(text) for text in row[4:]] for row in found.rows if "k given" in row[0]}
    assert set(given) == {(k, gpu) for k in ("3", "12") for gpu in simulated_gpus.SCORED_ON}
    assert min(group for _, group, _, _ in given.values()) > 30
    assert max(group for *_, group in given.values()) < 25
    # Errors of groups cancelled in the total before, and do not any more: it need not gain.
    total, _, by_time, _ = given["12", "SM75_RTX2060"]
    assert abs(total) < abs(by_time) < 10
