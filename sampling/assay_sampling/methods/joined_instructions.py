"""The instructions of every launch where the whole workload is a light recording, which has none."""

from __future__ import annotations

from dataclasses import replace

from assay_sampling.errors import RefusedError
from assay_sampling.launches.alignment import align_window
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import source_of

_COUNTER = "instructions"


def with_instructions_of_both_levels(profile: Profile, who: str) -> Profile:
    """The profile whose light launches have the instructions of the detailed ones.

    Returns it unchanged if the whole workload has them already, or neither level does. Raises RefusedError,
    naming ``who`` needs them, if the detailed launches are not the same as the light ones.
    """
    light, detailed = profile.light, profile.detailed
    if light is None or detailed is None or _COUNTER in light.table.schema.names:
        return profile
    if _COUNTER not in detailed.table.schema.names:
        return profile
    matched = len(align_window(detailed, light, "exact").right_rows)
    if not matched == len(light) == len(detailed):
        raise RefusedError(
            f"{source_of(detailed)} and {source_of(light)}",
            f"{who} needs the instructions of every launch; the detailed run has {len(detailed):,} launches, "
            f"{matched:,} of them among the {len(light):,} of the light run",
            "profile all launches with counters, or carry a window's groups over with the method pks",
        )
    column = detailed.table.schema.field(_COUNTER), detailed.table[_COUNTER]
    return replace(profile, light=replace(light, table=light.table.append_column(*column)))
