"""Comparing all selection methods on one profile: their scores, and why some do not apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay_client.files import AnyPath
from assay_client.recordings.analyses import read_profile
from assay_sampling.errors import AssayError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.methods.base import Sampler
from assay_sampling.scoring.selection import ProfileSummary, Selection

Parameters = Mapping[str, Mapping[str, Any]]


def compare(
    profile: Profile,
    *,
    methods: Sequence[str] = (),
    parameters: Parameters | None = None,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Select with every method and score all of them in the same way.

    Args:
        profile: what to select on.
        methods: names; an empty sequence means all methods.
        parameters: by name of the method.
        seed: the seed for every method.
        progress: gets the name of each method before it runs.

    Returns a document with the profile and an entry for each method. If a method refuses or fails, its
    entry has ``status`` "refused" or "failed" and the ``reason``; if it refuses, also the typed ``error``.
    Entries with ``pareto`` are those that no other beats in both error and speedup, among methods scored in
    the same cost.

    Raises ParameterError for an unknown method or parameter or an invalid value, RefusedError if no method
    applies.
    """
    known = registry.samplers()
    chosen = list(dict.fromkeys(methods)) or list(known)
    for name in chosen:
        if name not in known:
            raise ParameterError("compare", f"there is no method {name!r}", f"use some of {', '.join(known)}")
    given = parameters or {}
    entries = []
    for name in chosen:
        progress(name)
        entries.append(_entry(name, profile, given.get(name, {}), seed))
    if all(entry["status"] != "ok" for entry in entries):
        reasons = "; ".join(f"{entry['method']}: {entry['reason']}" for entry in entries)
        raise RefusedError(
            "compare", f"no method applies ({reasons})", "give a recording that one applies to"
        )
    _mark_pareto(entries)
    return {
        "profile": ProfileSummary.of(profile.whole).document().to_dict(),
        "seed": seed,
        "methods": entries,
    }


def compare_files(
    files: AnyPath | Sequence[AnyPath],
    *,
    light: AnyPath | None = None,
    ranks: bool = False,
    methods: Sequence[str] = (),
    parameters: Mapping[str, Any] | None = None,
    seed: int = 0,
    synthetic: bool | None = None,
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
) -> dict[str, Any]:
    """:func:`compare` on recordings. ``parameters`` are by NAME, for every method that has it, or by
    METHOD.NAME."""
    profile = read_profile(
        files, light=light, ranks=ranks, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes
    )
    given = parameters_by_method(parameters or {}, methods)
    return compare(profile, methods=methods, parameters=given, seed=seed)


def parameters_by_method(given: Mapping[str, Any], methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``METHOD.NAME`` goes to that method, ``NAME`` to every one of ``methods`` that has it.

    Raises ParameterError for a parameter that no method has.
    """
    known = registry.samplers()
    chosen = list(methods) or list(known)
    fields = {name: _parameter_names(known, name) for name in chosen}
    found: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    for key, value in given.items():
        method, separator, name = key.partition(".")
        if separator and method in fields:
            found[method][name] = value
            continue
        having = [each for each in chosen if key in fields[each]]
        if not having:
            raise ParameterError(
                "compare",
                f"no compared method has a parameter {key!r}",
                "write METHOD.NAME=VALUE for one of them",
            )
        for each in having:
            found[each].setdefault(key, value)
    return found


def _parameter_names(known: Mapping[str, Sampler], name: str) -> frozenset[str]:
    try:
        return frozenset(known[name].parameters.model_fields)
    except AssayError:  # the table reports a plug-in that cannot be loaded
        return frozenset()


def _entry(name: str, profile: Profile, parameters: Mapping[str, Any], seed: int) -> dict[str, Any]:
    try:
        selection = registry.select(name, profile, parameters, seed)
    except ParameterError as error:
        if parameters:
            raise
        return _without(name, "refused", error.explained, error)
    except AssayError as error:
        return _without(name, "refused", error.explained, error)
    except Exception as error:  # noqa: BLE001 - a method of another package may fail in any way
        return _without(name, "failed", f"{type(error).__name__}: {error}")
    return _scored(name, selection)


def _scored(name: str, selection: Selection) -> dict[str, Any]:
    scores, because = selection.evaluation, selection.why_no_interval
    return {
        "method": name,
        "status": "ok",
        "reason": "",
        "error": None,
        "parameters": dict(selection.parameters),
        "groups": len(selection.group_launches),
        "launches_to_simulate": len(selection.representatives.row),
        **scores.to_dict(),
        "interval": None if selection.interval is None else selection.interval.to_dict(),
        "interval_reason": None if because is None else because.to_dict(),
        "warnings": [note.to_dict() for note in (*selection.warnings, *selection.notes)],
        "pareto": False,
    }


def _without(name: str, status: str, reason: str, error: AssayError | None = None) -> dict[str, Any]:
    nothing = dict.fromkeys(
        (
            "parameters", "groups", "launches_to_simulate", "cost", "error_percent", "signed_error_percent",
            "group_error_percent", "speedup", "speedup_instructions", "speedup_launches",
            "weighted_cov_percent", "decomposition", "interval", "interval_reason",
        )
    )  # fmt: skip
    return {
        "method": name, "status": status, "reason": reason, "error": error and error.to_dict(), **nothing,
        "warnings": [], "pareto": False,
    }  # fmt: skip


def _mark_pareto(entries: Sequence[dict[str, Any]]) -> None:
    """Mark each entry unless another of the same cost is better in error or speedup and worse in neither.

    A total that is exact by construction proves nothing, so its method neither competes nor is marked.
    """
    scored = [entry for entry in entries if entry["status"] == "ok" and not _exact_by_construction(entry)]
    for entry in scored:
        entry["pareto"] = not any(_beats(other, entry) for other in scored)


def _exact_by_construction(entry: Mapping[str, Any]) -> bool:
    reason = entry["interval_reason"]
    return reason is not None and reason["code"] == "interval_exact_by_construction"


def _beats(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one["cost"]["quantity"] != other["cost"]["quantity"]:
        return False
    no_worse = one["error_percent"] <= other["error_percent"] and one["speedup"] >= other["speedup"]
    better = one["error_percent"] < other["error_percent"] or one["speedup"] > other["speedup"]
    return bool(no_worse and better)
