"""Looking into recordings, selecting and scoring, without a server: the functions behind the verbs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from assay_client.files import AnyPath
from assay_sampling import samplers
from assay_sampling.errors import InputError, ParameterError, RefusedError
from assay_sampling.evaluation import Evaluation
from assay_sampling.joining import join, refuse_same_content
from assay_sampling.launches import DEFAULT_MEMORY_LIMIT_BYTES, Launches
from assay_sampling.levels import check_levels
from assay_sampling.profile import Profile
from assay_sampling.readers import ReadOptions, inspect_recording, read_launches
from assay_sampling.scoring import saved_quantity, score_notes, score_relative, score_saved
from assay_sampling.selection import ProfileSummary, SavedSelection, Selection


def inspect(path: AnyPath, *, synthetic: bool | None = None) -> dict[str, Any]:
    """What a recording holds: path, format, launches, kernels, devices, levels, counters, notes.

    Streams; memory does not grow with the file. Raises InputError for what cannot be read.
    """
    return inspect_recording(Path(path), ReadOptions(synthetic=synthetic))


def read_profile(
    files: AnyPath | Sequence[AnyPath],
    *,
    light: AnyPath | None = None,
    ranks: bool = False,
    synthetic: bool | None = None,
    launch_offset: int | Sequence[int] | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> Profile:
    """Recordings of one workload as a profile: detailed and light ones are told apart by what they hold.

    Args:
        files: recordings; several of one level must be windows of one run, or ranks
            (:mod:`assay_sampling.joining`).
        light: the light recording of a two-level profile; with ``ranks`` that of the last rank.
        ranks: each file of a level is a rank of one job, in the order of the files.
        synthetic: mark the data as made by no silicon; None: as the files say.
        launch_offset: number the launches of ``files`` from here instead of by their own ids; several are
            one a file, in order. ``light`` keeps its numbers.
        memory_limit_bytes: refuse before holding more than this.

    Raises NotJoinableError for files that do not belong together, ParameterError where ``ranks`` or
    ``launch_offset`` do not fit the number of files, and what the readers raise.
    """
    paths = [Path(files)] if isinstance(files, str | PathLike) else [Path(path) for path in files]
    offsets = _offsets(launch_offset, len(paths))
    parts: dict[str, list[Launches]] = {"detailed": [], "light": []}
    free_bytes = memory_limit_bytes
    given = [*zip(paths, offsets, strict=True), *([] if light is None else [(Path(light), None)])]
    for path, offset in given:
        options = ReadOptions(synthetic=synthetic, launch_offset=offset)
        launches = _read(path, options, free_bytes, memory_limit_bytes)
        free_bytes -= launches.table.nbytes
        parts[launches.metadata.level].append(launches)
    if light is not None:
        _require_light(Path(light), parts["light"])
    _require_fitting(parts, ranks, one_offset=isinstance(launch_offset, int), with_light=light is not None)
    return Profile(
        detailed=join(parts["detailed"], ranks=ranks) if parts["detailed"] else None,
        light=join(parts["light"], ranks=ranks) if parts["light"] else None,
    )


def _offsets(given: int | Sequence[int] | None, files: int) -> Sequence[int | None]:
    if given is None or isinstance(given, int):
        return [given] * files
    if len(given) != files:
        raise ParameterError(
            "--launch-offset",
            f"{len(given)} launch offsets for {files} {'file' if files == 1 else 'files'}",
            "give it once, or once for each FILE, in their order",
        )
    return list(given)


def _require_light(path: Path, light: Sequence[Launches]) -> None:
    if not light or light[-1].sources != (str(path),):
        raise ParameterError(
            "--light",
            f"{path} was made by a profiler of counters, so its times are not those of a free run",
            "give a light recording (Nsight Systems, Kineto) of the same workload",
        )


def _require_fitting(
    parts: Mapping[str, Sequence[Launches]], ranks: bool, *, one_offset: bool, with_light: bool
) -> None:
    if ranks and max(len(of_level) for of_level in parts.values()) < 2:
        raise ParameterError(
            "--ranks", "one recording is given, and a job of ranks has several", "name the file of each rank"
        )
    given_light = len(parts["light"]) - with_light
    if one_offset and parts["detailed"] and given_light:
        raise ParameterError(
            "--launch-offset",
            "the files are of both levels, and a light recording begins at its own first launch",
            "give it once for each FILE, in their order, or the light recording as --light",
        )


def _read(path: Path, options: ReadOptions, free_bytes: int, limit_bytes: int) -> Launches:
    try:
        return read_launches(path, options, memory_limit_bytes=free_bytes)
    except RefusedError as error:
        if free_bytes == limit_bytes:
            raise
        # The limit is of all files together, and the reader knows only what is left of it.
        raise RefusedError(
            str(path),
            f"with the files before it, it takes more than the memory limit of {limit_bytes:,} bytes",
            error.remedy,
        ) from error


def select(
    method: str,
    files: AnyPath | Sequence[AnyPath],
    *,
    light: AnyPath | None = None,
    ranks: bool = False,
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> Selection:
    """Select representatives with a method ("pks", "random", "systematic", ...) and score them.

    ``files``, ``light`` and ``ranks`` are those of :func:`read_profile`. Raises ParameterError for an unknown
    method or parameter, InputError for a file that cannot be read, NotJoinableError for files that do not
    belong together, RefusedError where the method does not apply (PKS without counters).
    """
    profile = read_profile(
        files, light=light, ranks=ranks, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes
    )
    return samplers.select(method, profile, parameters or {}, seed)


def evaluate(
    selection: Selection | Mapping[str, Any] | AnyPath,
    file: AnyPath | Sequence[AnyPath],
    *,
    ranks: bool = False,
    quantity: str | None = None,
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> dict[str, Any]:
    """Score a selection, its weights as they are, on a recording of the same launches.

    Args:
        selection: a selection, its document, or the JSON file it was written to.
        file: the recording, for example of another GPU; several files as in :func:`read_profile`.
        ranks: each file is a rank of one job.
        quantity: the cost ("duration_ns", "cycles_gpc_avg", ...); None: that of the selection.

    Raises MisalignedError where the recording does not hold the same launches.
    """
    saved = load_selection(selection)
    launches = _whole(file, ranks, synthetic, memory_limit_bytes)
    return _evaluated(saved, launches, score_saved(saved, launches, quantity))


def evaluate_relative(
    selection: Selection | Mapping[str, Any] | AnyPath,
    first: AnyPath | Sequence[AnyPath],
    second: AnyPath | Sequence[AnyPath],
    *,
    ranks: bool = False,
    quantity: str | None = None,
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> dict[str, Any]:
    """How well a selection predicts the speedup of the second recording over the first.

    The recordings are of two GPUs, or of two shares of the SMs of one; the weights are taken as they are.
    Arguments are those of :func:`evaluate`; with ``ranks`` each recording is several files. Raises
    MisalignedError where a recording does not hold the launches of the selection, NotJoinableError where
    both are the same recording.
    """
    saved = load_selection(selection)
    one, other = (_whole(file, ranks, synthetic, memory_limit_bytes) for file in (first, second))
    refuse_same_content(one, other)
    found = score_relative(saved, one, other, quantity)
    document = _selection_part(saved)
    notes = []
    if found.first.unit == "cycle":
        notes.append("cycles of two clocks are compared: their ratio is not one of time (--cost duration_ns)")
    return {
        **document,
        **found.to_dict(),
        "first": _evaluated(saved, one, found.first),
        "second": _evaluated(saved, other, found.second),
        "notes": notes,
    }


def _whole(
    files: AnyPath | Sequence[AnyPath], ranks: bool, synthetic: bool | None, memory_limit_bytes: int
) -> Launches:
    profile = read_profile(files, ranks=ranks, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes)
    if profile.detailed is not None and profile.light is not None:
        check_levels(profile.detailed, profile.light)
    return profile.whole


def _selection_part(saved: SavedSelection) -> dict[str, Any]:
    return {
        "method": saved.document.get("method"),
        "parameters": saved.document.get("parameters"),
        "seed": saved.document.get("seed"),
        "selected_on": saved.document.get("profile"),
    }


def _evaluated(saved: SavedSelection, launches: Launches, evaluation: Evaluation) -> dict[str, Any]:
    here = ProfileSummary.of(launches).to_dict()
    return {
        **_selection_part(saved),
        "evaluated_on": here,
        "match": _match(saved.document["profile"]["sequence"], here["sequence"]),
        **evaluation.to_dict(),
        "notes": [
            *_notes(saved, evaluation),
            *(note.text for note in score_notes(saved, launches, evaluation)),
        ],
    }


def _notes(saved: SavedSelection, evaluation: Evaluation) -> Iterator[str]:
    made_in = saved_quantity(saved)
    if made_in != evaluation.quantity:
        yield (
            f"scored in {evaluation.quantity}, and the selection was made in {made_in or 'an unknown cost'}: "
            "these errors are not those of the selection"
        )
    if evaluation.group_error_percent is None:
        yield "the group error is not known: the selection was saved without labels"


def _match(saved: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, float | None]:
    """Percent of launches that match, by kind; None where the saved hashes tell only that some differ."""
    by_totals = bool(saved.get("totals_only") or here["totals_only"])
    return {
        kind: 100.0
        if saved.get(kind) == here[kind]
        or (by_totals and saved.get(f"{kind}_totals") == here[f"{kind}_totals"])
        else None
        for kind in ("exact", "name_block")
    } | {"position": 100.0}


def load_selection(selection: Selection | Mapping[str, Any] | AnyPath) -> SavedSelection:
    """A selection as it is saved; raises InputError naming the file where it is not one."""
    if isinstance(selection, Selection):
        return SavedSelection.from_dict(selection.to_dict(labels=True), "selection")
    if isinstance(selection, Mapping):
        return SavedSelection.from_dict(selection, "selection")
    path = Path(selection)
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(path, f"it cannot be read ({error.strerror})", "name a selection file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            path, f"it is not JSON ({error})", "write one with: assay select METHOD FILE -o selection.json"
        ) from error
    return SavedSelection.from_dict(document, str(path))
