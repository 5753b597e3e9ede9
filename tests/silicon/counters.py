"""PKS on the counters that exist: a tuning space, selected on an RTX 2080 Ti, scored on an RTX 3090."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import numpy as np

from assay_client.recordings.analyses import evaluate_profile
from assay_client.recordings.foreign import import_table
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import select
from assay_sampling.readers.opening import read_launches
from tests.fidelity.section import Section, shared_data
from tests.silicon.recordings import TUNING, recording

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "foreign-tables.md"
_COLUMNS = ("counters", "features", "weights", "chosen", "speedup", "total error %", "group error %")


def counters_section(draws: int) -> Section:
    """Two sets of counters, each with and without the light run beside it."""
    light = TUNING.recording(TUNING.here)
    profiles = {
        "7 that Assay has a name for": recording("ktt_pnpoly_rtx2080ti_counters.parquet"),
        "all 33, by `assay import table`": _all_counters(),
    }
    rows = []
    for (title, detailed), features in zip(profiles.items(), ("auto", "all"), strict=True):
        for beside in (None, light):
            rows.append(_row(title, features, Profile(detailed, beside), draws))
    about = (
        "KTT pnpoly: one kernel, 3,815 configurations of a tuning space. Selected on the RTX 2080 Ti, scored "
        f"on the RTX 3090 in free-running nanoseconds; root mean squares over {draws} seeds, representatives "
        "drawn at random, group errors over the groups of each selection."
    )
    return Section("PKS on the counters that exist", about, _COLUMNS, rows)


def _row(title: str, features: str, profile: Profile, draws: int) -> tuple[str, ...]:
    there = Profile(light=TUNING.recording(TUNING.there))
    given = {"features": features, "representative": "random"}
    found = []
    for seed in range(draws):
        made = select("pks", profile, given, seed)
        scored = evaluate_profile(made, there)
        found.append(
            (
                len(made.representatives.row),
                made.evaluation.speedup,
                scored["signed_error_percent"],
                scored["group_error_percent"],
            )
        )
    chosen, speedup, total, group = np.array(found, float).T
    return (
        title,
        features,
        scored["weights"].replace("_", " "),
        f"{chosen.mean():.0f}",
        f"{speedup.mean():,.0f}",
        f"{np.sqrt(np.square(total).mean()):.2f}",
        f"{np.sqrt(np.square(group).mean()):.2f}",
    )


def _all_counters() -> Launches:
    folder = shared_data()
    assert folder is not None
    mapping = re.search(r"```toml\n# ktt\.toml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert mapping is not None
    with tempfile.TemporaryDirectory() as place:
        described, written = Path(place) / "ktt.toml", Path(place) / "launches.parquet"
        described.write_text(mapping[1])
        import_table(folder / "silicon" / "ktt_pnpoly_all_counters.csv.gz", described, written)
        return read_launches(written)
