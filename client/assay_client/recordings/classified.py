"""The group of every launch of a workload, as a document and as a file of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from assay_client.files import AnyPath
from assay_client.recordings.analyses import read_profile
from assay_sampling.errors import ParameterError
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES, Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.scoring.decomposition import ORIGINS
from assay_sampling.scoring.selection import Selection


def classify(profile: Profile, parameters: Mapping[str, Any], seed: int = 0) -> Selection:
    """PKS on two levels; the selection has a label for every launch of the light run.

    Raises ParameterError if the profile has only one level, and what
    :func:`assay_sampling.methods.pks.two_level.two_level_selection` raises.
    """
    if profile.detailed is None or profile.light is None:
        missing = "counters" if profile.detailed is None else "a light recording"
        raise ParameterError(
            "classify",
            f"there is no recording with {missing}",
            "give both: assay classify DETAILED --light LIGHT",
        )
    return registry.select("pks", profile, parameters, seed)


def classify_files(
    files: AnyPath | Sequence[AnyPath],
    light: AnyPath,
    *,
    ranks: bool = False,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> Selection:
    """:func:`classify` on recordings; ``labels`` of the selection has the group of every light launch."""
    profile = read_profile(
        files, light=light, ranks=ranks, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes
    )
    return classify(profile, parameters or {}, seed)


def document(selection: Selection) -> dict[str, Any]:
    """Facts about the labels; the labels themselves are in :func:`label_file`."""
    origins = np.bincount(_origins(selection), minlength=len(ORIGINS))
    whole = selection.document().to_dict()
    kept = (
        "parameters", "seed", "profile", "cost", "error_percent", "signed_error_percent",
        "group_error_percent", "decomposition", "speedup", "score_notes", "two_level",
    )  # fmt: skip
    return {
        "launches": int(origins.sum()),
        "groups": len(selection.group_launches),
        "launches_by_origin": dict(zip(ORIGINS, origins.tolist(), strict=True)),
        **{key: whole[key] for key in kept},
    }


def label_file(launches: Launches, selection: Selection, suffix: str) -> bytes:
    """Labels as a ``.csv`` or ``.parquet`` file: process, launch, group, and where the group came from."""
    assert selection.labels is not None
    table = pa.table(
        {
            "process": launches.table["process"],
            "launch": launches.table["launch"],
            "group": pa.array(selection.labels.astype(np.int32)),
            "origin": pa.DictionaryArray.from_arrays(_origins(selection).astype(np.int8), list(ORIGINS)),
        }
    )
    sink = pa.BufferOutputStream()
    if suffix == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - one of two formats

        pq.write_table(table, sink, compression="zstd")
    else:
        import pyarrow.csv as pc  # noqa: PLC0415 - one of two formats

        plain = table.set_column(3, "origin", table["origin"].cast(pa.string()))
        pc.write_csv(plain, sink, pc.WriteOptions(quoting_style="none"))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _origins(selection: Selection) -> np.ndarray:
    assert selection.label_origins is not None
    return selection.label_origins
