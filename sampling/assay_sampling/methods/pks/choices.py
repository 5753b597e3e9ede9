"""What PKS takes where a recording lacks what the paper asks for: other counters, and time for cycles.

Source: docs/methods/pks.md, "Other counters".
"""

from __future__ import annotations

from dataclasses import replace

from assay_sampling.counters.definitions import ALL_CYCLES
from assay_sampling.counters.features import (
    all_features,
    is_feature_set,
    missing_of_published,
    named_features,
    neutral_features,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.scoring.evaluation import Evaluation

PROFILED_TIME, LIGHT_TIME = "profiled_duration_ns", "duration_ns"


def cost_without_cycles(profile: Profile) -> str | None:
    """The cost that chooses K where no launch has cycles; None where one has, or nothing was measured.

    Of a profile with a light run that is the light time, in which it is scored anyway.
    """
    detailed = profile.detailed
    if detailed is None or any(name in detailed.counters for name in ALL_CYCLES):
        return None
    timed = profile.light or detailed
    if len(timed) and not timed.table[LIGHT_TIME].null_count:
        return LIGHT_TIME
    return PROFILED_TIME if PROFILED_TIME in detailed.counters else None


def with_light_time(window: Launches, light: Launches) -> Launches:
    """The launches of a window, n, with the durations of the same n launches in the light run."""
    place = window.table.schema.get_field_index(LIGHT_TIME)
    table = window.table.set_column(place, window.table.schema.field(place), light.table[LIGHT_TIME])
    return replace(window, table=table)


def choice_notes(launches: Launches, features: str, evaluation: Evaluation) -> tuple[Note, ...]:
    """Notes on counters other than those of a feature set, and on K that no cycles chose."""
    notes = []
    if not is_feature_set(features):
        names = named_features(features)
        missing = missing_of_published(names)
        more = {"measured": len(all_features(launches))} if names == neutral_features(launches) else {}
        notes.append(make_note("features_chosen", features=names, missing_of_pka=missing, **more))
    if not any(name in launches.counters for name in ALL_CYCLES):
        notes.append(make_note("k_without_cycles", quantity=evaluation.quantity))
    return tuple(notes)
