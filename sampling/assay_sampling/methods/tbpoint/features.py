"""TBPoint's features of launches: size, control-flow divergence, memory divergence, uneven thread blocks.

    < thread instructions / mean, warp instructions / mean, memory requests / mean, CoV of thread-block sizes
    >

The means are over all launches. The paper's memory requests are those of a warp's access after coalescing, 1
to 32 for an instruction: on today's GPUs these are 32-byte sectors. Nsight Compute's requests are one for
each instruction, however divergent.

Where a recording lacks the sectors, or counters are named, each counter over its mean is a feature instead of
the first three (:mod:`assay_sampling.counters.features`).

Source: TBPoint (Huang et al., IPDPS 2014), section III, equation 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from assay_sampling.clustering.feature_space import feature_matrix
from assay_sampling.counters.features import (
    AUTO,
    chosen_features,
    fitted_features,
    missing_of_published,
    named_features,
)
from assay_sampling.errors import RefusedError
from assay_sampling.launches.alignment import align_window
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import source_of
from assay_sampling.methods.needs import Needs, cycles
from assay_sampling.methods.registry import without_counters
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.readers.block_files import read_block_size_variation

MemoryFeature = Literal["sectors", "requests"]
_GLOBAL: dict[MemoryFeature, tuple[str, ...]] = {
    "sectors": ("global_load_sectors", "global_store_sectors"),
    "requests": ("global_load_requests", "global_store_requests"),
}
# Used if measured: few recordings have them, and few kernels use local memory.
_LOCAL: dict[MemoryFeature, tuple[str, ...]] = {
    "sectors": ("local_load_sectors", "local_store_sectors"),
    "requests": (),
}


@dataclass(frozen=True)
class TBPointFeatures:
    """Features of n launches, ``matrix`` of shape (n, f), f = 4 as published, and their warp
    ``instructions``, shape (n,).

    ``counters`` are those that were used, ``notes`` are for readers.
    """

    matrix: np.ndarray
    instructions: np.ndarray
    counters: tuple[str, ...]
    notes: tuple[Note, ...]


def tbpoint_needs(memory: MemoryFeature, features: str = AUTO) -> Needs:
    """The counters that :func:`tbpoint_features` looks at, and a cost, which is scored."""
    costs = cycles(None)
    if features != AUTO:
        names = ("instructions", *named_features(features))
        return Needs(counters=tuple(dict.fromkeys(names)), one_of=costs, of_every_launch=True)
    return Needs(
        counters=("instructions", *_GLOBAL[memory]),
        one_of=(("thread_instructions", "threads_per_instruction"), *costs),
        optional=_LOCAL[memory],
        of_every_launch=True,
    )


def fitted_counters(launches: Launches, memory: MemoryFeature, features: str) -> str:
    """The features for a recording: ``auto`` where it has the published counters, else a list of counters.

    Raises as :func:`assay_sampling.counters.features.fitted_features`.
    """
    if features != AUTO:
        return ",".join(named_features(fitted_features(features, launches, "tbpoint")))
    published = replace(tbpoint_needs(memory), one_of=tbpoint_needs(memory).one_of[:1])
    if launches.metadata.simulated or not published.lacking(launches.counters):
        return AUTO
    return ",".join(chosen_features(launches, "tbpoint"))


def counted_launches(profile: Profile) -> Launches:
    """The launches with counters; these must be all launches of the light recording, if there is one.

    Raises RefusedError without launches or counters, or for those of a window only.
    """
    detailed = profile.detailed
    if detailed is None or not detailed.counters:
        raise RefusedError(
            source_of(profile.whole if detailed is None else detailed),
            "TBPoint not applicable: no counters",
            without_counters("tbpoint", tbpoint_needs("sectors"), detailed or profile.whole),
        )
    if profile.light is not None:
        matched = len(align_window(detailed, profile.light, "exact").right_rows)
        if not matched == len(detailed) == len(profile.light):
            raise RefusedError(
                f"{source_of(detailed)} and {source_of(profile.light)}",
                f"TBPoint needs the counters of every launch; the detailed run has {len(detailed):,} "
                f"launches, {matched:,} of them among the {len(profile.light):,} of the light run",
                "profile all launches with counters, or carry a window's groups over with the method pks",
            )
    return detailed


def tbpoint_features(
    launches: Launches,
    *,
    memory: MemoryFeature = "sectors",
    features: str = AUTO,
    block_sizes: Path | None = None,
) -> TBPointFeatures:
    """The features of detailed launches.

    Args:
        memory: what a memory request is; see the module.
        features: the published ones, or a list of counters.
        block_sizes: thread instructions of each thread block
            (:func:`assay_sampling.readers.block_files.read_block_size_variation`); None: the variation is 0,
            with a note.

    Raises CounterUnavailableError if a counter is missing or not a number for a launch, RefusedError for a
    negative one, InputError for the file.
    """
    measured = launches.counters
    thread = (
        ("thread_instructions",)
        if "thread_instructions" in measured
        else ("instructions", "threads_per_instruction")
    )
    requests = (*_GLOBAL[memory], *(name for name in _LOCAL[memory] if name in measured))
    named = () if features == AUTO else named_features(features)
    counters = tuple(dict.fromkeys(("instructions", *(named or (*thread, *requests)))))
    values = dict(zip(counters, feature_matrix(launches, counters, method="tbpoint").T, strict=True))
    for name, column in values.items():
        if len(column) and float(column.min()) < 0:
            raise RefusedError(
                source_of(launches), f"the counter {name!r} is negative", "profile the workload again"
            )
    notes: tuple[Note, ...] = (make_note("block_sizes_unknown"),)
    variation = np.zeros(len(launches))
    if block_sizes is not None:
        notes, variation = (), read_block_size_variation(block_sizes, launches)
    if named:
        missing = missing_of_published(named)
        notes = (*notes, make_note("features_chosen", features=named, missing_of_pka=missing))
    columns = [_over_mean(values[name]) for name in named] or [
        _over_mean(np.prod([values[name] for name in thread], axis=0)),
        _over_mean(values["instructions"]),
        _over_mean(np.sum([values[name] for name in requests], axis=0)),
    ]
    columns.append(variation)
    return TBPointFeatures(np.stack(columns, axis=1), values["instructions"], counters, notes)


def with_instructions(light: Launches, detailed: Launches) -> Launches:
    """The light launches with the instructions of the detailed ones, which are the same launches."""
    name = "instructions"
    column = detailed.table.schema.field(name), detailed.table[name]
    return replace(light, table=light.table.append_column(*column))


def _over_mean(values: np.ndarray) -> np.ndarray:
    """Values over their mean; 0 if that is 0. The largest is divided out first: sums must not overflow."""
    largest = float(values.max(initial=0.0))
    if not largest > 0:
        return np.zeros_like(values)
    scaled = values / largest
    relative: np.ndarray = scaled / scaled.mean()
    return relative
