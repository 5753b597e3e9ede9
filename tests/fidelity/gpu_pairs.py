"""Every recording of the shared data that there is of two GPUs, and workloads on virtual GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import whole_cost
from assay_sampling.methods.by_operation import OperationProfile, operation_profile
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.targets.matched import Target, Workload
from assay_sampling.scoring.weights import light_time_of_profile
from tests.fidelity.section import shared_data
from tests.fidelity.virtual_recordings import virtual_recording

_SIMULATED = ("SM7_QV100", "SM75_RTX2060", "SM86_RTX3070")
_WINDOWS = ((200, 0), (500, 3000), (1000, 9000))
_VIRTUAL = ("inference", "pipeline", "solver", "stencil", "training", "traversal")


@dataclass(frozen=True)
class GpuPair:
    """A profile of ``workload`` and another GPU's recording of it; by operation where ``by_operation``."""

    workload: str
    profile: Profile
    other: Launches
    by_operation: bool = False

    def operations(self) -> OperationProfile | None:
        return operation_profile(self.profile) if self.by_operation else None

    def target(self, operations: OperationProfile | None, quantity: str) -> Target:
        """The other GPU, matched once."""
        of = self.profile if operations is None else operations.profile
        workload = Workload.of(of.whole, light_time_of_profile(of))
        if operations is None:
            return Target.by_launch(workload, of.whole, self.other, quantity)
        time = light_time_of_profile(of)
        values = whole_cost(of).values if time is None else time
        return Target.by_operation(workload, operations.whole, values, self.other, quantity)


Source = Callable[[], Iterator[GpuPair]]


def sources() -> dict[str, Source]:
    """By name of the workload in alphabetical order, what yields its pairs; those of the shared data only
    where that is there."""
    found: dict[str, Source] = {f"virtual {name}": _virtual(name) for name in _VIRTUAL}
    folder = shared_data()
    if folder is not None:
        found |= {
            "graph": _simulated(folder / "accel_sim_graph", "graph"),
            "infer": _simulated(folder / "accel_sim_more", "infer"),
            "ktt": _ktt(folder / "silicon"),
            "neusight": _operators(folder / "silicon", "neusight", ("neusight_v100", "neusight_a100")),
            "nsfw": _traces(folder / "silicon", "Falconsai_nsfw_image_detection"),
            "serving": _serving(folder / "silicon"),
            "three_gpus": _three_gpus(folder / "three_gpus"),
            "timesformer": _traces(folder / "silicon", "facebook_timesformer-base-finetuned-k400"),
        }
    return dict(sorted(found.items()))


def _three_gpus(folder: Path) -> Source:
    def pairs() -> Iterator[GpuPair]:
        light, counted = read_launches(folder / "v100_light.json.gz"), read_launches(folder / "v100.csv.gz")
        windows = [counted.take(np.arange(first, first + count)) for count, first in _WINDOWS]
        profiles = [Profile(light=light), *(Profile(each, light) for each in (counted, *windows))]
        for gpu in ("rtx2060", "rtx3070"):
            other = read_launches(folder / f"{gpu}.csv.gz")
            yield from (GpuPair("three_gpus", profile, other) for profile in profiles)

    return pairs


def _simulated(folder: Path, application: str) -> Source:
    def pairs() -> Iterator[GpuPair]:
        runs = {gpu: read_launches(folder / f"{application}.{gpu}.out.gz") for gpu in _SIMULATED}
        for here, there in permutations(runs, 2):
            yield GpuPair(application, Profile(detailed=runs[here]), runs[there])

    return pairs


def _serving(folder: Path) -> Source:
    def pairs() -> Iterator[GpuPair]:
        names = ("a100_sxm", "h100_sxm", "l40s")
        runs = {gpu: read_launches(folder / f"serving_{gpu}.parquet") for gpu in names}
        for here, there in permutations(runs, 2):
            yield GpuPair("serving", Profile(light=runs[here]), runs[there])

    return pairs


def _ktt(folder: Path) -> Source:
    def pairs() -> Iterator[GpuPair]:
        old, new, counted = (
            read_launches(folder / f"ktt_pnpoly_{name}.parquet")
            for name in ("rtx2080ti_light", "rtx3090_light", "rtx2080ti_counters")
        )
        yield GpuPair("ktt", Profile(counted, old), new)
        yield GpuPair("ktt", Profile(light=new), old)

    return pairs


def _operators(folder: Path, workload: str, names: tuple[str, str], ending: str = "parquet") -> Source:
    def pairs() -> Iterator[GpuPair]:
        for here, there in permutations([read_launches(folder / f"{name}.{ending}") for name in names]):
            yield GpuPair(workload, Profile(light=here), there, by_operation=True)

    return pairs


def _traces(folder: Path, model: str) -> Source:
    names = (f"h100__{model}__1016002", f"mi300__{model}__1016002")
    return _operators(folder, model, names, "json.gz")


def _virtual(name: str) -> Source:
    def pairs() -> Iterator[GpuPair]:
        light = virtual_recording(name, "V100", "light")
        window = virtual_recording(name, "V100", "detailed", max(200, len(light) // 100))
        for gpu in ("RTX 2060", "RTX 3070"):
            yield GpuPair(f"virtual {name}", Profile(window, light), virtual_recording(name, gpu, "light"))

    return pairs
