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
from assay_sampling.methods.by_operation import select_by_unit
from assay_sampling.methods.pks.parameters import PksParameters
from assay_sampling.operations.collapsing import Operations
from assay_sampling.parameters import Unit
from assay_sampling.readers.listed_launches import read_listed_launches
from assay_sampling.scoring.error_parts.decomposition import ORIGINS
from assay_sampling.scoring.selection import Selection

if TYPE_CHECKING:
    from assay_sampling.methods.pks.untimed import UntimedLabels


def classify(
    profile: Profile, parameters: Mapping[str, Any], seed: int = 0, unit: Unit = "launch"
) -> Selection:
    """PKS on two levels; the selection has a label for every launch, or operation, of the light run.

    Raises ParameterError if the profile has only one level, and what
    :func:`assay_sampling.methods.pks.two_level.two_level_groups` raises; by operation RefusedError for a
    light recording that knows no operations.
    """
    if profile.detailed is None or profile.light is None:
        missing = "counters" if profile.detailed is None else "a light recording"
        raise ParameterError(
            "classify",
            f"there is no recording with {missing}",
            "give both: assay classify DETAILED --light LIGHT",
        )
    return select_by_unit(unit, "pks", profile, parameters, seed)


def classify_files(
    files: AnyPath | Sequence[AnyPath],
    light: AnyPath,
    *,
    ranks: bool = False,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    unit: Unit = "launch",
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> Selection:
    """:func:`classify` on recordings; ``labels`` of the selection has the group of every light launch."""
    options = parameters or {}
    profile = read_profile(
        files,
        light=light,
        ranks=ranks,
        synthetic=synthetic,
        metrics=own_metrics(options.get("features")),
        memory_limit_bytes=memory_limit_bytes,
    )
    return classify(profile, options, seed, unit)


def classify_listed(
    files: AnyPath | Sequence[AnyPath],
    listed: AnyPath,
    *,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> tuple[Launches, UntimedLabels, dict[str, Any]]:
    """Groups and projected costs of all launches of a ``kernelslist.g``, from a simulated part of them.

    Returns the listed launches, their labels, and the document of both.

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
    labels = label_untimed(profile.detailed, launches, checked, seed=seed)
    origins = np.bincount(labels.labelling.origins(), minlength=len(ORIGINS))
    held_out = {name: each.expected for name, each in labels.labelling.held_out.items()}
    written = {
        "launches": len(launches),
        "groups": labels.labelling.groups,
        "launches_by_origin": dict(zip(ORIGINS, origins.tolist(), strict=True)),
        "parameters": checked.model_dump(mode="json"),
        "seed": seed,
        "match_percent": labels.match_percent,
        "chosen_model": labels.labelling.chosen,
        "expected_accuracy_percent": held_out,
        "projected": labels.facts(),
    }
    return launches, labels, written


def document(selection: Selection) -> dict[str, Any]:
    """Facts about the labels; the labels themselves are in :func:`label_file`."""
    origins = np.bincount(_origins(selection), minlength=len(ORIGINS))
    whole = selection.document().to_dict()
    keys = (
        "parameters", "seed", "profile", "cost", "error_percent", "signed_error_percent",
        "group_error_percent", "decomposition", "speedup", "score_notes", "two_level",
    )  # fmt: skip
    return {
        **({} if selection.operations is None else {"unit": "operation"}),
        "launches": int(origins.sum()),
        "groups": len(selection.group_launches),
        "launches_by_origin": dict(zip(ORIGINS, origins.tolist(), strict=True)),
        **{key: whole[key] for key in keys},
    }


def label_file(launches: Launches, selection: Selection, suffix: str) -> bytes:
    """Labels as a ``.csv`` or ``.parquet`` file: process, launch, group, and where the group came from.

    By operation a row each, with its first launch, its name, kind, input shapes and thread, and how many
    launches it has.
    """
    assert selection.labels is not None
    if selection.operations is not None:
        return _file(_table_of_operations(selection), suffix)
    return _file(_table(launches, selection.labels, _origins(selection)), suffix)


def listed_file(launches: Launches, labels: UntimedLabels, suffix: str) -> bytes:
    """As :func:`label_file`, with the projected cost of each launch; null for kernels without any."""
    table = _table(launches, labels.labels, labels.labelling.origins())
    cost = pa.array(labels.cost, from_pandas=True)
    return _file(table.append_column(f"projected_{labels.quantity}", cost), suffix)


def _table(launches: Launches, labels: np.ndarray, origins: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "process": launches.table["process"],
            "launch": launches.table["launch"],
            "group": pa.array(labels.astype(np.int32)),
            "origin": pa.DictionaryArray.from_arrays(origins.astype(np.int8), list(ORIGINS)),
        }
    )


def _table_of_operations(selection: Selection) -> pa.Table:
    assert selection.operations is not None
    assert selection.labels is not None
    operations = selection.operations.operations
    table = _table(operations.launches, selection.labels, _origins(selection))
    for name, values in _identities(operations).items():
        table = table.append_column(name, values)
    return table.append_column("launches", pa.array(operations.sizes()))


def operation_table(operations: Operations) -> pa.Table:
    """A row an operation: where it begins, what it is, its launches, its duration and its stratum."""
    rows = operations.launches
    strata, place = np.unique(rows.column("kernel_id"), return_inverse=True)
    names = pa.array([rows.names[each] for each in strata.tolist()], pa.string())
    return pa.table(
        {
            "process": rows.table["process"],
            "launch": rows.table["launch"],
            **_identities(operations),
            "launches": pa.array(operations.sizes()),
            "duration_ns": rows.table["duration_ns"],
            "stratum": names.take(pa.array(place.reshape(-1))),
        }
    )


def _identities(operations: Operations) -> dict[str, pa.Array]:
    each = pa.array(operations.identity)
    named = {
        "operation": pa.array([one.name for one in operations.identities], pa.string()),
        "kind": pa.array([one.kind for one in operations.identities], pa.string()),
        "input_shapes": pa.array([one.shapes for one in operations.identities], pa.string()),
        "thread": pa.array([one.thread for one in operations.identities], pa.int64()),
    }
    return {name: values.take(each) for name, values in named.items()}


def _file(table: pa.Table, suffix: str) -> bytes:
    sink = pa.BufferOutputStream()
    if suffix == ".parquet":
        import pyarrow.parquet as pq  # noqa: PLC0415 - one of two formats

        pq.write_table(table, sink, compression="zstd")
    else:
        import pyarrow.csv as pc  # noqa: PLC0415 - one of two formats

        plain = table.set_column(3, "origin", table["origin"].cast(pa.string()))
        # Names of operations may hold commas and quotes; numbers alone need neither.
        quoting = "needed" if "operation" in table.column_names else "none"
        pc.write_csv(plain, sink, pc.WriteOptions(quoting_style=quoting))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _origins(selection: Selection) -> np.ndarray:
    assert selection.label_origins is not None
    return selection.label_origins
