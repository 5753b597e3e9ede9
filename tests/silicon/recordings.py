"""The pairs of real recordings, what is selected by on each, and the goals of each pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assay_sampling.launches.in_memory import Launches
from assay_sampling.parameters import Unit
from assay_sampling.readers.opening import read_launches
from tests.fidelity.section import shared_data


@dataclass(frozen=True)
class Goal:
    """What the best method of a pair is to keep: a speedup, and root mean squares of errors in percent."""

    speedup: float
    operations: int = 0
    total_percent: float = 3.0
    group_percent: float | None = None


@dataclass(frozen=True)
class Case:
    """A method as it is tried; ``draws`` says that the seed matters."""

    method: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    draws: bool = True

    @property
    def title(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.method}, {given}" if given else self.method


@dataclass(frozen=True)
class Pair:
    """Two recordings of one workload: selections are made ``here`` and scored ``there``."""

    workload: str
    here: str
    there: str
    files: Mapping[str, str]
    unit: Unit
    cases: tuple[Case, ...]
    goal: Goal | None = None

    def backwards(self) -> Pair:
        return Pair(self.workload, self.there, self.here, self.files, self.unit, self.cases, self.goal)

    def recording(self, gpu: str) -> Launches:
        return recording(self.files[gpu])


@cache
def recording(name: str) -> Launches:
    """A recording of ``silicon``; raises FileNotFoundError without the folder of real recordings."""
    folder = shared_data()
    if folder is None:
        raise FileNotFoundError("the real recordings are not here; set ASSAY_SHARED_DATA to their folder")
    return read_launches(Path(folder) / "silicon" / name)


_STRATA = (
    Case("stem"),
    Case("stem", {"least_samples": 2}),
    Case("stratified", {"weights": "light_time"}),
    Case("proportional"),
    Case("random"),
    Case("systematic"),
)
_MODELS = {
    "Falconsai nsfw_image_detection": ("Falconsai_nsfw_image_detection", Goal(3, 100, 3, 6)),
    "Facebook timesformer": ("facebook_timesformer-base-finetuned-k400", Goal(5, 300, 3, 6)),
}

TRACES = tuple(
    Pair(
        workload,
        "H100",
        "MI300X",
        {"H100": f"h100__{name}__1016002.json.gz", "MI300X": f"mi300__{name}__1016002.json.gz"},
        "operation",
        _STRATA,
        goal,
    )
    for workload, (name, goal) in _MODELS.items()
)
NEUSIGHT = Pair(
    "NeuSight operator calls",
    "V100",
    "A100",
    {"V100": "neusight_v100.parquet", "A100": "neusight_a100.parquet"},
    "operation",
    (
        Case("stem"),
        Case("stem", {"epsilon_percent": 3}),
        Case("stem", {"epsilon_percent": 2}),
        Case("stratified", {"weights": "light_time", "launches": 1000}),
        Case("proportional"),
        Case("random", {"weights": "light_time"}),
    ),
    Goal(30),
)
TUNING = Pair(
    "KTT pnpoly, one kernel",
    "RTX 2080 Ti",
    "RTX 3090",
    {"RTX 2080 Ti": "ktt_pnpoly_rtx2080ti_light.parquet", "RTX 3090": "ktt_pnpoly_rtx3090_light.parquet"},
    "launch",
    (
        Case("stem"),
        Case("stem", {"least_samples": 8}),
        Case("random", {"weights": "light_time"}),
        Case("proportional"),
    ),
)
SERVING = tuple(
    Pair(
        "serving (composed, smoke test)",
        "A100",
        gpu,
        {"A100": "serving_a100_sxm.parquet", gpu: f"serving_{name}.parquet"},
        "launch",
        (Case("stem"),),
    )
    for gpu, name in (("H100", "h100_sxm"), ("L40S", "l40s"))
)


def pairs() -> list[Pair]:
    """All pairs, in both directions where the goals ask for it."""
    both = [one for pair in (*TRACES, NEUSIGHT, TUNING) for one in (pair, pair.backwards())]
    return [*both, *SERVING]
