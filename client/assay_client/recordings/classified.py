"""The group of every launch of a workload, as a document and as a file of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from assay_client.files import AnyPath
from assay_client.recordings.analyses import read_profile
from assay_sampling.counters.features import own_metrics
from assay_sampling.errors import ParameterError
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES, Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.methods.pks.sampler import PksParameters
from assay_sampling.readers.listed_launches import read_listed_launches
from assay_sampling.scoring.decomposition import ORIGINS
from assay_sampling.scoring.selection import Selection

if TYPE_CHECKING:
    from assay_sampling.methods.pks.untimed import UntimedLabels


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
    given = parameters or {}
    profile = read_profile(
        files,
        light=light,
        ranks=ranks,
        synthetic=synthetic,
        metrics=own_metrics(given.get("features")),
        memory_limit_bytes=memory_limit_bytes,
    )
    return classify(profile, given, seed)


def classify_listed(
    files: AnyPath | Sequence[AnyPath],
    listed: AnyPath,
    *,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> tuple[Launches, UntimedLabels, dict[str, Any]]:
    """Groups and projected costs of all launches of a ``kernelslist.g``, from a simulated part of them.

    Returns the listed launches, what was found, and the document of both.

    Raises ParameterError for files without counters, and what
    :func:`assay_sampling.methods.pks.untimed.label_untimed` raises.
    """
    # It loads the models, which other verbs do not need.
    from assay_sampling.methods.pks.untimed import label_untimed  # noqa: PLC0415

    profile = read_profile(files, memory_limit_bytes=memory_limit_bytes)
    if profile.detailed is None:
        raise ParameterError(
            "classify", "there is no recording with counters", "give the log of the simulated launches"
        )
    launches = read_listed_launches(Path(listed))
    checked = registry.checked_parameters("pks", profile, parameters or {})
    assert isinstance(checked, PksParameters)
    found = label_untimed(profile.detailed, launches, checked, seed=seed)
    origins = np.bincount(found.labelling.origins(), minlength=len(ORIGINS))
    held_out = {name: each.expected for name, each in found.labelling.held_out.items()}
    written = {
        "launches": len(launches),
        "groups": found.labelling.groups,
        "launches_by_origin": dict(zip(ORIGINS, origins.tolist(), strict=True)),
        "parameters": checked.model_dump(mode="json"),
        "seed": seed,
        "match_percent": found.match_percent,
        "chosen_model": found.labelling.chosen,
        "expected_accuracy_percent": held_out,
        "projected": found.facts(),
    }
    return launches, found, written


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
    return _file(_table(launches, selection.labels, _origins(selection)), suffix)


def listed_file(launches: Launches, found: UntimedLabels, suffix: str) -> bytes:
    """As :func:`label_file`, with the projected cost of each launch; null for kernels without any."""
    table = _table(launches, found.labels, found.labelling.origins())
    cost = pa.array(found.cost, from_pandas=True)
    return _file(table.append_column(f"projected_{found.quantity}", cost), suffix)


def _table(launches: Launches, labels: np.ndarray, origins: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "process": launches.table["process"],
            "launch": launches.table["launch"],
            "group": pa.array(labels.astype(np.int32)),
            "origin": pa.DictionaryArray.from_arrays(origins.astype(np.int8), list(ORIGINS)),
        }
    )


def _file(table: pa.Table, suffix: str) -> bytes:
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
