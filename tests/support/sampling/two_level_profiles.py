"""Two-level profiles built from a recording of which everything is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from assay_sampling.launches import table as lt
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.pks.two_level import two_level_groups
from assay_sampling.scoring.selection import Selection

CYCLES_PER_NS = 1.38


def light_half(launches: Launches) -> Launches:
    """What a light run of the same launches tells: names, shapes, and durations from their cycles."""
    metadata = replace(launches.metadata, level="light")
    schema = lt.launch_schema(metadata)
    duration_ns = np.round(launches.column("cycles_gpc_avg") / CYCLES_PER_NS).astype(np.int64)
    start_ns = np.cumsum(duration_ns + 1_000) - duration_ns
    columns = {name: launches.table[name] for name in lt.BASE_COLUMNS}
    columns.update(duration_ns=pa.array(duration_ns), start_ns=pa.array(start_ns))
    table = pa.table([columns[field.name] for field in schema], schema=schema)
    return Launches(table, launches.names, ("light half",))


def two_level_selection(profile: Profile, **parameters: Any) -> Selection:
    """The selection of PKS on both levels, with the published defaults."""
    return two_level_groups(profile, **parameters).selection()
