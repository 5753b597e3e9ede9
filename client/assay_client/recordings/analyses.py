"""Inspecting recordings, selecting and scoring without a server: the functions behind the verbs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from assay_client.files import AnyPath
from assay_client.recordings import evaluated, operations
from assay_client.recordings.units import UnitChoice, require_unit, unit_for, with_the_other_unit
from assay_core.processes.tool_exports import export_report
from assay_sampling.counters.features import own_metrics
from assay_sampling.documents.reading import WRITE_AGAIN
from assay_sampling.documents.selection import SelectionDocument, SequenceHashes
from assay_sampling.errors import InputError, MisalignedError, ParameterError, RefusedError
from assay_sampling.gathering.spilling import spill_beyond
from assay_sampling.handover.weights_file import looks_like_weights, read_weights
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES, Launches
from assay_sampling.launches.joining import join, refuse_same_content
from assay_sampling.launches.levels import check_levels
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.by_operation import select_by_unit
from assay_sampling.parameters import WeightKind
from assay_sampling.projection.early_costs import early_costs, score_stopped_early
from assay_sampling.projection.files import ProjectionOptions
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.known_files import SELECTION, known_file_at
from assay_sampling.readers.opening import read_launches, what_is_this
from assay_sampling.scoring.elsewhere import (
    default_weights,
    score_notes,
    score_saved_by_weights,
)
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.matching import same_sequence
from assay_sampling.scoring.relative import score_relative_by_weights
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import ProfileSummary, Selection
from assay_sampling.simulators.accel_sim.run import SimulatorRun

# A selection, its document, the JSON value of that, or the file it was written to.
SomeSelection = Selection | SelectionDocument | Mapping[str, Any] | AnyPath


def inspect(path: AnyPath, *, synthetic: bool | None = None, top: int = 0) -> dict[str, Any]:
    """What a recording holds: path, format, launches, kernels, devices, levels, counters, notes, and the
    ``top`` kernels, operators and ranges with the most time, if it is not 0.

    Streams; memory does not grow with the file. Raises InputError for what cannot be read.
    """
    return inspect_recording(Path(path), ReadOptions(synthetic=synthetic, export=export_report), top=top)


def read_profile(
    files: AnyPath | Sequence[AnyPath],
    *,
    light: AnyPath | None = None,
    ranks: bool = False,
    synthetic: bool | None = None,
    launch_offset: int | Sequence[int] | None = None,
    metrics: Sequence[str] = (),
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    spill_beyond_bytes: int | None = None,
) -> Profile:
    """Recordings of one workload as a profile; their contents tell detailed and light ones apart.

    Args:
        files: recordings; several of one level must be windows of one run, or ranks
            (:mod:`assay_sampling.launches.joining`).
        light: the light recording of a two-level profile; with ``ranks`` the last rank's.
        ranks: each file of a level is a rank of one job, in the order of the files.
        synthetic: mark the data as not measured on silicon; None: as the files say.
        launch_offset: number the launches of ``files`` from here instead of by their own ids; give one for
            all files or one for each, in order. ``light`` keeps its numbers.
        metrics: of Nsight Compute, to keep as counters under their own names, though Assay has none for them.
        memory_limit_bytes: refuse before holding more than this.
        spill_beyond_bytes: as :func:`assay_sampling.gathering.spilling.spill_beyond` gives it.

    Raises NotJoinableError for files that do not belong together, ParameterError if ``ranks`` or
    ``launch_offset`` do not fit the number of files, and what the readers raise.
    """
    paths = [Path(files)] if isinstance(files, str | PathLike) else [Path(path) for path in files]
    offsets = _offsets(launch_offset, len(paths))
    parts: dict[str, list[Launches]] = {"detailed": [], "light": []}
    free_bytes = memory_limit_bytes
    inputs = [*zip(paths, offsets, strict=True), *([] if light is None else [(Path(light), None)])]
    for path, offset in inputs:
        options = ReadOptions(
            synthetic=synthetic, launch_offset=offset, metrics=tuple(metrics), export=export_report
        )
        launches = _read(path, options, free_bytes, memory_limit_bytes, spill_beyond_bytes)
        free_bytes -= launches.table.nbytes
        # A simulator counts while it times: a log given as --light is a light run whose cycles are its time.
        last = light is not None and path is inputs[-1][0]
        level = "light" if last and launches.metadata.simulated else launches.metadata.level
        parts[level].append(launches)
    if light is not None:
        _require_light(Path(light), parts["light"])
    _require_fitting(parts, ranks, one_offset=isinstance(launch_offset, int), with_light=light is not None)
    return Profile(
        detailed=join(parts["detailed"], ranks=ranks) if parts["detailed"] else None,
        light=join(parts["light"], ranks=ranks) if parts["light"] else None,
    )


def _offsets(offsets: int | Sequence[int] | None, files: int) -> Sequence[int | None]:
    if offsets is None or isinstance(offsets, int):
        return [offsets] * files
    if len(offsets) != files:
        raise ParameterError(
            "--launch-offset",
            f"{len(offsets)} launch offsets for {files} {'file' if files == 1 else 'files'}",
            "give it once, or once for each FILE, in their order",
        )
    return list(offsets)


def _require_light(path: Path, light: Sequence[Launches]) -> None:
    if not light or light[-1].sources != (str(path),):
        raise ParameterError(
            "--light",
            f"{path} was made by a profiler of counters, so its times are not those of a free run",
            "give a light recording (Nsight Systems, Kineto), or a simulator's log, of the same workload",
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


def _read(
    path: Path, options: ReadOptions, free_bytes: int, limit_bytes: int, spill_beyond_bytes: int | None
) -> Launches:
    try:
        return read_launches(path, options, free_bytes, spill_beyond_bytes=spill_beyond_bytes)
    except RefusedError as error:
        if free_bytes == limit_bytes:
            raise
        # The limit covers all files together, and the reader knows only the rest of it.
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
    unit: UnitChoice = "auto",
    on: AnyPath | None = None,
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> Selection:
    """Select representatives with a method ("pks", "random", "systematic", ...) and score them.

    ``files``, ``light`` and ``ranks`` are as in :func:`read_profile`, ``unit`` and ``on``, a recording of
    another GPU, as in :func:`assay_client.recordings.units.unit_for`. Raises ParameterError for an unknown
    method or parameter, InputError for a file that cannot be read, NotJoinableError for files that do not
    belong together, RefusedError if the method does not apply (PKS without counters).
    """
    options = parameters or {}
    profile = read_profile(
        files,
        light=light,
        ranks=ranks,
        synthetic=synthetic,
        metrics=own_metrics(options.get("features")),
        memory_limit_bytes=memory_limit_bytes,
        spill_beyond_bytes=None
        if any((light, on, unit == "operation", not isinstance(files, str | PathLike) and len(files) > 1))
        else spill_beyond(method, options),
    )
    other = (
        None if on is None else read_profile(on, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes)
    )
    return select_by_unit(unit_for(unit, profile, other), method, profile, options, seed)


def evaluate(
    selection: SomeSelection,
    file: AnyPath | Sequence[AnyPath],
    *,
    ranks: bool = False,
    quantity: str | None = None,
    weights: WeightKind | None = None,
    scales_at_most: float | None = None,
    intervals: AnyPath | None = None,
    projection: ProjectionOptions | None = None,
    unit: UnitChoice = "auto",
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> dict[str, Any]:
    """Score a selection with unchanged weights on a recording of the same launches or operations.

    Args:
        selection: a selection, its document, or the JSON file it was written to.
        file: the recording, for example of another GPU; several files as in :func:`read_profile`.
        ranks: each file is a rank of one job.
        quantity: the cost ("duration_ns", "cycles_gpc_avg", ...); None: that of the selection.
        weights: "launches", "instructions" or "light_time"; None: by light time on another GPU or under
            another condition where the selection has them, else its own.
        scales_at_most: no launch scales more than so many times as its kernel does, on which the interval
            rests; None: 3.
        intervals: the interval log of a recording that is a simulator's standard output: scores the
            representatives with projected costs, too, as if each simulation had ended where a rule stops.
        projection: the rule, its parameters and, for logs without options, the SMs.
        unit: "auto" takes the unit of the selection; another one than that is refused.

    Raises MisalignedError if the recording does not hold the same launches or operations; with
    ``intervals`` InputError if they are not of its run, ParameterError if it is not one simulator's log.
    """
    saved = load_selection(selection)
    require_unit(unit, saved)
    launches = _whole(file, ranks, synthetic, memory_limit_bytes)
    document, used = _scored(saved, launches, quantity, weights, scales_at_most)
    if intervals is not None:
        _require_launches(saved, "--intervals")
        document |= {"stopped_early": _stopped_early(saved, launches, used, intervals, projection)}
    return document


def evaluate_profile(
    selection: SomeSelection,
    profile: Profile,
    *,
    quantity: str | None = None,
    weights: WeightKind | None = None,
    scales_at_most: float | None = None,
) -> dict[str, Any]:
    """:func:`evaluate` on a profile in memory."""
    return _scored(load_selection(selection), _checked_whole(profile), quantity, weights, scales_at_most)[0]


def _scored(
    saved: SavedSelection,
    launches: Launches,
    quantity: str | None,
    weights: WeightKind | None,
    scales_at_most: float | None,
) -> tuple[dict[str, Any], Evaluation]:
    """The document of a selection's scores, and the scores by the weights that it says."""
    if saved.unit == "operation":
        return operations.evaluated(saved, launches, quantity, weights, scales_at_most=scales_at_most)
    try:
        scores = score_saved_by_weights(saved, launches, quantity, scales_at_most=scales_at_most)
    except MisalignedError as error:
        raise with_the_other_unit(error, saved, launches) from error
    used = default_weights(saved, launches) if weights is None else weights
    saved.weights_of(used)
    document = {**_evaluated(saved, launches, scores[used]), "by_weights": evaluated.by_weights(scores)}
    return document, scores[used]


def _require_launches(saved: SavedSelection, option: str) -> None:
    """Raise ParameterError for a selection by operation where only launches have the answer."""
    if saved.unit != "launch":
        raise ParameterError(
            option,
            "the selection was made by operation",
            "leave it out, or select by launch on the simulator's own log",
        )


def _stopped_early(
    saved: SavedSelection,
    launches: Launches,
    evaluation: Evaluation,
    intervals: AnyPath,
    projection: ProjectionOptions | None,
) -> dict[str, Any]:
    if launches.metadata.origin != "simulated" or len(launches.sources) != 1:
        raise ParameterError(
            "--intervals",
            "the recording is not the standard output of one simulation",
            "leave it out, or name the simulator's log that it belongs to",
        )
    options = projection or ProjectionOptions()
    run = SimulatorRun(Path(launches.sources[0]), Path(intervals))
    costs = early_costs(run, launches, evaluation.quantity, options)
    return {"rule": options.rule, **score_stopped_early(saved, launches, evaluation, costs).to_dict()}


def evaluate_relative(
    selection: SomeSelection,
    first: AnyPath | Sequence[AnyPath],
    second: AnyPath | Sequence[AnyPath],
    *,
    ranks: bool = False,
    quantity: str | None = None,
    weights: WeightKind | None = None,
    scales_at_most: float | None = None,
    unit: UnitChoice = "auto",
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> dict[str, Any]:
    """How well a selection predicts the speedup of the second recording over the first.

    The recordings are of two GPUs, or of two shares of the SMs of one; the weights stay unchanged.
    Arguments are as in :func:`evaluate`; with ``ranks`` each recording is several files. Raises
    MisalignedError if a recording does not hold the launches or operations of the selection,
    NotJoinableError if both are the same recording.
    """
    saved = load_selection(selection)
    require_unit(unit, saved)
    one, other = (_whole(file, ranks, synthetic, memory_limit_bytes) for file in (first, second))
    return _scored_relative(saved, one, other, quantity, weights, scales_at_most=scales_at_most)


def evaluate_relative_profiles(
    selection: SomeSelection,
    first: Profile,
    second: Profile,
    *,
    quantity: str | None = None,
    weights: WeightKind | None = None,
    scales_at_most: float | None = None,
) -> dict[str, Any]:
    """:func:`evaluate_relative` on profiles in memory."""
    one, other = _checked_whole(first), _checked_whole(second)
    return _scored_relative(
        load_selection(selection), one, other, quantity, weights, scales_at_most=scales_at_most
    )


def _scored_relative(
    saved: SavedSelection,
    one: Launches,
    other: Launches,
    quantity: str | None,
    weights: WeightKind | None,
    *,
    scales_at_most: float | None,
) -> dict[str, Any]:
    refuse_same_content(one, other)
    if saved.unit == "operation":
        return operations.evaluated_relative(
            saved, (one, other), quantity, weights, scales_at_most=scales_at_most
        )
    scores = score_relative_by_weights(saved, one, other, quantity, scales_at_most=scales_at_most)
    used = default_weights(saved, one, other) if weights is None else weights
    saved.weights_of(used)
    relative_score = scores[used]
    first_by, second_by = (
        evaluated.by_weights({kind: getattr(score, which) for kind, score in scores.items()})
        for which in ("first", "second")
    )
    first = {**_evaluated(saved, one, relative_score.first), "by_weights": first_by}
    second = {**_evaluated(saved, other, relative_score.second), "by_weights": second_by}
    return evaluated.relative(saved, scores, used, first, second)


def _whole(
    files: AnyPath | Sequence[AnyPath], ranks: bool, synthetic: bool | None, memory_limit_bytes: int
) -> Launches:
    return _checked_whole(
        read_profile(files, ranks=ranks, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes)
    )


def _checked_whole(profile: Profile) -> Launches:
    """All launches of a workload; raises what :func:`check_levels` raises if its levels do not match."""
    if profile.detailed is not None and profile.light is not None:
        check_levels(profile.detailed, profile.light)
    return profile.whole


def _evaluated(saved: SavedSelection, launches: Launches, evaluation: Evaluation) -> dict[str, Any]:
    here = ProfileSummary.of(launches)
    doubts = (*evaluated.notes(saved, evaluation), *score_notes(saved, launches, evaluation))
    return {
        **evaluated.verdict_part(saved, launches, evaluation),
        **evaluated.selection_part(saved),
        "evaluated_on": here.document().to_dict(),
        "match": _match(saved.sequence, here.sequence()),
        "weights": evaluation.weights,
        **evaluation.to_dict(),
        **evaluation.interval_dict(),
        "notes": [note.to_dict() for note in doubts],
    }


def _match(saved: SequenceHashes, here: SequenceHashes) -> dict[MatchKind, float | None]:
    """Percent of launches that match, by kind; None if the saved hashes show only that some differ."""
    kinds: tuple[MatchKind, ...] = ("exact", "name_block")
    return {
        **{kind: 100.0 if same_sequence(saved, here, kind) else None for kind in kinds},
        "position": 100.0,
    }


def load_selection(selection: SomeSelection) -> SavedSelection:
    """A selection in its saved form, from its document, a file of that, or a weights file.

    Raises InputError naming a file that is neither, and the verb that reads it.
    """
    if isinstance(selection, Selection):
        return SavedSelection.of(selection.document(labels=True), "selection")
    if isinstance(selection, SelectionDocument):
        return SavedSelection.of(selection, "selection")
    if isinstance(selection, Mapping):
        return SavedSelection.read(selection, "selection")
    path = Path(selection)
    try:
        data = path.read_bytes()
        if looks_like_weights(data):
            return read_weights(path)
        document = json.loads(data)
    except OSError as error:
        raise InputError(path, f"it cannot be read ({error.strerror})", "name a selection file") from error
    except (ValueError, RecursionError) as error:
        raise _not_a_selection(path, f"it is not JSON ({error})") from error
    kind = known_file_at(path)
    if kind not in (None, SELECTION):
        raise _not_a_selection(path, "it is not a selection")
    return SavedSelection.read(document, str(path))


def _not_a_selection(path: Path, cause: str) -> InputError:
    kind = what_is_this(path)
    return InputError(path, cause if kind is None else kind.explained, WRITE_AGAIN)
