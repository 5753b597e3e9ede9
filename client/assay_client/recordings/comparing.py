"""Comparing all selection methods on one profile: their scores, and why some do not apply."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from assay_client.files import AnyPath
from assay_client.recordings.analyses import read_profile
from assay_client.recordings.other_gpus.compared import Compared, Judged, judge
from assay_client.recordings.units import UnitChoice
from assay_sampling.counters.features import own_metrics
from assay_sampling.errors import AssayError, MethodFailedError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.methods.base import Sampler
from assay_sampling.methods.by_operation import try_operations
from assay_sampling.methods.tried import Tried
from assay_sampling.notes.registry import make_note
from assay_sampling.parameters import Unit
from assay_sampling.scoring.fair import Contender, Fair, no_star, recommend
from assay_sampling.scoring.selection import ProfileSummary
from assay_sampling.scoring.trials import LEAST_TRIALS, trials_for
from assay_sampling.verdicts.facts import VerdictFacts
from assay_sampling.verdicts.rules import verdict_of
from assay_sampling.verdicts.windows import windows_of

Parameters = Mapping[str, Mapping[str, Any]]


def compare(
    profile: Profile,
    *,
    methods: Sequence[str] = (),
    parameters: Parameters | None = None,
    seed: int = 0,
    trials: int | None = None,
    unit: UnitChoice = "auto",
    on: Profile | Sequence[Profile] = (),
    speedup: float | None = None,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Select with every method and score all of them in the same way.

    Args:
        profile: what to select on.
        methods: names; an empty sequence means all methods.
        parameters: by name of the method.
        seed: the seed for every method.
        trials: tries of each method that draws or that reads costs, at least 30; None: by the number of
            launches (:func:`assay_sampling.scoring.trials.trials_for`).
        unit: what is selected; "auto": launches, unless fewer than 99 % of them agree with those of one of
            ``on`` and both know operations.
        on: recordings of other GPUs. Each method's selection is scored on them, and so is every method with
            both kinds of weights at one speedup; stars and recommendation then follow the other GPUs.
        speedup: at which methods are compared there; None: the median of their own.
        progress: gets the name of each method before it runs.

    Returns a document with the profile and an entry for each method. If a method refuses or fails, its
    entry has ``status`` "refused" or "failed" and the ``reason``; if it refuses, also the typed ``error``.
    ``fair`` scores a method over its tries. Entries with ``pareto`` (a star) are those that no other beats in
    both fair error and fair speedup, among methods scored in the same cost; ``no_star`` says why not. The
    ``recommendation`` names the method to take. By operation, ``unit`` and the number of ``operations`` are
    added; ``verdict`` is that on the recommended
    method, null without one. With ``on`` an entry for each recording there, in each method's entry a list of
    :class:`assay_client.recordings.other_gpus.compared.ScoredOn`, and ``at_speedup`` with the scores behind
    the stars. A recording that cannot be matched is an entry with ``status`` "refused" and the ``reason``.

    Raises ParameterError for an unknown method or parameter or an invalid value, RefusedError if no method
    applies, or for a recording that knows no operations if they are selected.
    """
    chosen = _chosen(methods)
    if trials is not None and trials < LEAST_TRIALS:
        raise ParameterError("trials", f"{trials} tries say little", f"give {LEAST_TRIALS} or more")
    options = parameters or {}
    others = [on] if isinstance(on, Profile) else list(on)
    _check_speedup(speedup, others)
    compared = Compared.of(profile, unit, others)
    count = trials_for(compared.rows) if trials is None else trials
    entries = []
    for name in chosen:
        progress(name)
        entries.append(_entry(name, compared, options.get(name, {}), seed, count))
    if all(entry["status"] != "ok" for entry in entries):
        raise _none_applies(entries)
    recommendation = _judge_at_home(entries, compared.unit)
    judged = None
    if compared.targets:
        progress("on other GPUs")
        judged = judge(compared, entries, options, seed=seed, draws=trials, speedup=speedup)
        recommendation = judged.recommendation
        _give_stars(entries, judged)
    elif others:
        recommendation["notes"] = [make_note("no_target_scored", targets=len(others)).to_dict()]
    described = ProfileSummary.of(profile.whole).document().to_dict()
    windows = windows_of(described["notes"])
    return {
        "verdict": _verdict(entries, recommendation, judged, others=len(others), windows=windows),
        **compared.unit_part(),
        "profile": described,
        **({"on": [each.to_dict() for each in compared.on]} if others else {}),
        "seed": seed,
        "methods": entries,
        **({} if judged is None else {"at_speedup": judged.document}),
        "recommendation": recommendation,
    }


def _none_applies(entries: Sequence[Mapping[str, Any]]) -> RefusedError:
    """Why no method applies: each reason once, with the methods that have it."""
    methods: dict[str, list[str]] = {}
    for entry in entries:
        methods.setdefault(entry["reason"], []).append(entry["method"])
    errors = [entry.get("error") for entry in entries]
    first = errors[0]
    if len(methods) == 1 and len(entries) > 1 and first is not None:
        return RefusedError(first["subject"], entries[0]["reason"], first["remedy"])
    reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in methods.items())
    remedies = {error["remedy"] for error in errors if error is not None}
    remedy = remedies.pop() if len(remedies) == 1 else "give a recording that one applies to"
    return RefusedError("compare", f"no method applies ({reasons})", remedy)


def _verdict(
    entries: Sequence[Mapping[str, Any]],
    recommendation: Mapping[str, Any],
    judged: Judged | None,
    *,
    others: int,
    windows: tuple[str, ...],
) -> dict[str, Any] | None:
    """The verdict on the recommended method: by its largest errors on other GPUs, if any was scored. Of
    ``others`` that were given and could not be scored it is that nothing is known of them."""
    method = recommendation["method"]
    if judged is None or method is None:
        entry = next((entry for entry in entries if entry["method"] == method), None)
        if entry is None or not others:
            return None if entry is None else entry["verdict"]
        facts = VerdictFacts(
            error_percent=entry["error_percent"],
            group_error_percent=entry["group_error_percent"],
            elsewhere=True,
            unscored_recordings=others,
            windows=windows,
        )
        return verdict_of(facts).to_dict()
    method_and_weights = (method, recommendation["weights"])
    row = next(
        each for each in judged.document["rows"] if (each["method"], each["weights"]) == method_and_weights
    )
    facts = VerdictFacts(
        error_percent=row["worst_error_percent"],
        group_error_percent=row["worst_part_error_percent"],
        elsewhere=True,
        windows=windows,
    )
    return verdict_of(facts).to_dict()


def _chosen(methods: Sequence[str]) -> list[str]:
    names = registry.samplers()
    chosen = list(dict.fromkeys(methods)) or list(names)
    for name in chosen:
        if name not in names:
            raise ParameterError("compare", f"there is no method {name!r}", f"use some of {', '.join(names)}")
    return chosen


def _check_speedup(speedup: float | None, on: Sequence[Profile]) -> None:
    if speedup is None:
        return
    if not 1 <= speedup < math.inf:
        raise ParameterError("speedup", f"{speedup:g} is not a speedup", "give a number of at least 1")
    if not on:
        raise ParameterError("speedup", "methods are compared at a speedup on other GPUs", "give --on, too")


def _give_stars(entries: Sequence[dict[str, Any]], judged: Judged) -> None:
    """Stars by the other GPUs in place of those by this recording."""
    for entry in entries:
        if entry["status"] == "ok":
            against = judged.stars[entry["method"]]
            entry["pareto"], entry["no_star"] = against is None, against


def _judge_at_home(entries: Sequence[dict[str, Any]], unit: Unit) -> dict[str, Any]:
    """Give stars by the fair scores on this recording; returns which method to take."""
    contenders = {entry["method"]: _contender(entry) for entry in entries if entry["status"] == "ok"}
    rivals = list(contenders.values())
    for entry in entries:
        if entry["method"] in contenders:
            against = no_star(contenders[entry["method"]], rivals)
            entry["pareto"], entry["no_star"] = against is None, against and against.to_dict()
    return recommend(rivals).in_unit(unit).to_dict()


def compare_files(
    files: AnyPath | Sequence[AnyPath],
    *,
    light: AnyPath | None = None,
    ranks: bool = False,
    methods: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    trials: int | None = None,
    unit: UnitChoice = "auto",
    on: AnyPath | Sequence[AnyPath] = (),
    speedup: float | None = None,
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> dict[str, Any]:
    """:func:`compare` on recordings. ``parameters`` are by NAME, for every method that has it, or by
    METHOD.NAME."""
    profile = read_profile(
        files,
        light=light,
        ranks=ranks,
        synthetic=synthetic,
        metrics=metrics_of(parameters or {}),
        memory_limit_bytes=memory_limit_bytes,
    )
    by_method = parameters_by_method(parameters or {}, methods)
    others = [
        read_profile(path, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes)
        for path in ([on] if isinstance(on, str | PathLike) else on)
    ]
    return compare(
        profile,
        methods=methods,
        parameters=by_method,
        seed=seed,
        trials=trials,
        unit=unit,
        on=others,
        speedup=speedup,
    )


def metrics_of(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """The metrics that ``features`` of any method name, and that Assay has no counter for."""
    named = (value for key, value in parameters.items() if key.rpartition(".")[2] == "features")
    return tuple(dict.fromkeys(metric for features in named for metric in own_metrics(features)))


def parameters_by_method(options: Mapping[str, Any], methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``METHOD.NAME`` goes to that method, ``NAME`` to every one of ``methods`` that has it.

    Raises ParameterError for a parameter that no method has.
    """
    samplers = registry.samplers()
    chosen = list(methods) or list(samplers)
    fields = {name: _parameter_names(samplers, name) for name in chosen}
    parameters: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    for key, value in options.items():
        method, separator, name = key.partition(".")
        if separator and method in fields:
            parameters[method][name] = value
            continue
        having = [each for each in chosen if key in fields[each]]
        if not having:
            raise ParameterError(
                "compare",
                f"no compared method has a parameter {key!r}",
                "write METHOD.NAME=VALUE for one of them",
            )
        for each in having:
            parameters[each].setdefault(key, value)
    return parameters


def _parameter_names(samplers: Mapping[str, Sampler], name: str) -> frozenset[str]:
    try:
        return frozenset(samplers[name].parameters.model_fields)
    except AssayError:  # the table reports a plug-in that cannot be loaded
        return frozenset()


def _entry(
    name: str, compared: Compared, parameters: Mapping[str, Any], seed: int, trials: int
) -> dict[str, Any]:
    try:
        tried = _tried(name, compared, parameters, seed, trials)
    except ParameterError as error:
        if parameters:
            raise
        return _without(name, "refused", error.explained, error)
    except MethodFailedError as error:
        return _without(name, "failed", f"{error.subject}: {error.cause}", error)
    except AssayError as error:
        return _without(name, "refused", error.explained, error)
    except Exception as error:  # noqa: BLE001 - a method of another package may fail in any way
        return _without(name, "failed", f"{type(error).__name__}: {error}")
    entry = _scored(name, tried)
    if compared.on:
        entry["on"] = compared.scored_on(tried.selection)
    return entry


def _tried(method: str, compared: Compared, parameters: Mapping[str, Any], seed: int, trials: int) -> Tried:
    if compared.operations is None:
        return registry.select_and_try(method, compared.profile, parameters, seed, trials)
    return try_operations(compared.operations, method, parameters, seed, trials)


def _scored(name: str, tried: Tried) -> dict[str, Any]:
    selection = tried.selection
    scores, because = selection.evaluation, selection.why_no_interval
    return {
        "method": name,
        "status": "ok",
        "reason": "",
        "error": None,
        "parameters": dict(selection.parameters),
        "groups": len(selection.group_launches),
        "launches_to_simulate": len(selection.representatives.row),
        "weight_kinds": list(selection.weight_kinds),
        **scores.to_dict(),
        "interval": None if selection.interval is None else selection.interval.to_dict(),
        "interval_reason": None if because is None else because.to_dict(),
        "warnings": [note.to_dict() for note in (*selection.warnings, *selection.notes)],
        "verdict": selection.verdict.to_dict(),
        "fair": tried.fair.to_dict(),
        "pareto": False,
        "no_star": None,
    }


def _contender(entry: Mapping[str, Any]) -> Contender:
    return Contender(entry["method"], entry["cost"]["quantity"], Fair(**entry["fair"]))


def _without(name: str, status: str, reason: str, error: AssayError | None = None) -> dict[str, Any]:
    nothing = dict.fromkeys(
        (
            "parameters", "groups", "launches_to_simulate", "weight_kinds", "cost", "error_percent",
            "signed_error_percent", "group_error_percent", "speedup", "speedup_instructions",
            "speedup_launches", "weighted_cov_percent", "decomposition", "interval", "interval_reason",
            "verdict", "fair", "no_star",
        )
    )  # fmt: skip
    return {
        "method": name, "status": status, "reason": reason, "error": error and error.to_dict(), **nothing,
        "warnings": [], "pareto": False,
    }  # fmt: skip
