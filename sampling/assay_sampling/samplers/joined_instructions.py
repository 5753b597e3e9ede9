"""The instructions of every launch where the whole workload is a light recording, which has none."""

from __future__ import annotations

from dataclasses import replace

from assay_sampling.alignment import align_window
from assay_sampling.errors import RefusedError
from assay_sampling.profile import Profile
from assay_sampling.samplers.base import source_of

_COUNTER = "instructions"


def with_instructions_of_both_levels(profile: Profile, who: str) -> Profile:
    """The profile whose light launches have the instructions of the detailed ones.

    It is left as it is where the whole workload has them already, or no level has. Raises RefusedError, in
    the name of ``who`` needs them, where the detailed launches are not the very same as the light ones.
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
