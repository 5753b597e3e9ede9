"""Comparing all selection methods on one profile: their scores, and why some do not apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from assay_client.files import AnyPath
from assay_client.recordings.analyses import evaluate_profile, read_profile
from assay_client.recordings.units import UnitChoice, unit_for
from assay_sampling.counters.features import own_metrics
from assay_sampling.errors import AssayError, MethodFailedError, ParameterError, RefusedError
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_sampling.methods.base import Sampler
from assay_sampling.methods.by_operation import OperationProfile, operation_profile, try_operations
from assay_sampling.methods.tried import Tried
from assay_sampling.scoring.fair import Contender, Fair, no_star, recommend
from assay_sampling.scoring.selection import ProfileSummary, Selection
from assay_sampling.scoring.trials import LEAST_TRIALS, trials_for

Parameters = Mapping[str, Mapping[str, Any]]


def compare(
    profile: Profile,
    *,
    methods: Sequence[str] = (),
    parameters: Parameters | None = None,
    seed: int = 0,
    trials: int | None = None,
    unit: UnitChoice = "auto",
    on: Profile | None = None,
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
        unit: what is selected; "auto": launches, unless fewer than 99 % of them agree with those of ``on``
            (:func:`assay_client.recordings.units.unit_for`).
        on: a recording of another GPU, on which each method's selection is scored, too.
        progress: gets the name of each method before it runs.

    Returns a document with the profile and an entry for each method. If a method refuses or fails, its
    entry has ``status`` "refused" or "failed" and the ``reason``; if it refuses, also the typed ``error``.
    ``fair`` scores a method over its tries. Entries with ``pareto`` (a star) are those that no other beats in
    both fair error and fair speedup, among methods scored in the same cost; ``no_star`` says why not. The
    ``recommendation`` names the method to take. By operation, ``unit`` and the number of ``operations`` are
    added; with ``on`` its profile, and in each entry the :class:`ScoredOn` of the selection.

    Raises ParameterError for an unknown method or parameter or an invalid value, RefusedError if no method
    applies, or for a recording that knows no operations if they are selected.
    """
    known = registry.samplers()
    chosen = list(dict.fromkeys(methods)) or list(known)
    for name in chosen:
        if name not in known:
            raise ParameterError("compare", f"there is no method {name!r}", f"use some of {', '.join(known)}")
    if trials is not None and trials < LEAST_TRIALS:
        raise ParameterError("trials", f"{trials} tries say little", f"give {LEAST_TRIALS} or more")
    given = parameters or {}
    compared = _Compared.of(profile, unit, on)
    count = trials_for(compared.rows) if trials is None else trials
    entries = []
    for name in chosen:
        progress(name)
        entries.append(_entry(name, compared, given.get(name, {}), seed, count))
    if all(entry["status"] != "ok" for entry in entries):
        reasons = "; ".join(f"{entry['method']}: {entry['reason']}" for entry in entries)
        raise RefusedError(
            "compare", f"no method applies ({reasons})", "give a recording that one applies to"
        )
    contenders = {entry["method"]: _contender(entry) for entry in entries if entry["status"] == "ok"}
    rivals = list(contenders.values())
    for entry in entries:
        if entry["method"] in contenders:
            against = no_star(contenders[entry["method"]], rivals)
            entry["pareto"], entry["no_star"] = against is None, against and against.to_dict()
    return {
        **compared.unit_part(),
        "profile": ProfileSummary.of(profile.whole).document().to_dict(),
        **({} if on is None else {"on": ProfileSummary.of(on.whole).document().to_dict()}),
        "seed": seed,
        "methods": entries,
        "recommendation": recommend(rivals).to_dict(),
    }


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
    on: AnyPath | None = None,
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
    given = parameters_by_method(parameters or {}, methods)
    other = (
        None if on is None else read_profile(on, synthetic=synthetic, memory_limit_bytes=memory_limit_bytes)
    )
    return compare(profile, methods=methods, parameters=given, seed=seed, trials=trials, unit=unit, on=other)


def metrics_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The metrics that ``features`` of any method name, and that Assay has no counter for."""
    named = (value for key, value in given.items() if key.rpartition(".")[2] == "features")
    return tuple(dict.fromkeys(metric for features in named for metric in own_metrics(features)))


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


@dataclass(frozen=True)
class ScoredOn:
    """The scores of a method's selection on another recording, by the weights that ``assay evaluate`` takes
    there; without them ``reason`` and ``error`` say why."""

    status: Literal["ok", "refused"]
    reason: str = ""
    error: AssayError | None = None
    weights: str | None = None
    error_percent: float | None = None
    signed_error_percent: float | None = None
    group_error_percent: float | None = None
    speedup: float | None = None
    operations: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, selection: Selection, other: Profile) -> ScoredOn:
        try:
            found = evaluate_profile(selection, other)
        except AssayError as error:
            return cls("refused", error.explained, error)
        names = ("weights", "error_percent", "signed_error_percent", "group_error_percent", "speedup")
        return cls("ok", operations=found.get("operations"), **{name: found[name] for name in names})

    def to_dict(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **found,
            "error": self.error and self.error.to_dict(),
            "operations": None if self.operations is None else dict(self.operations),
        }


@dataclass(frozen=True)
class _Compared:
    """What is compared: a profile, its operations where they are selected, and the recording to score on."""

    profile: Profile
    operations: OperationProfile | None
    on: Profile | None

    @classmethod
    def of(cls, profile: Profile, choice: UnitChoice, on: Profile | None) -> _Compared:
        by_operation = unit_for(choice, profile, on) == "operation"
        return cls(profile, operation_profile(profile) if by_operation else None, on)

    @property
    def rows(self) -> int:
        """How many launches or operations the methods choose from."""
        return len(self.profile.whole) if self.operations is None else len(self.operations.whole)

    def unit_part(self) -> dict[str, Any]:
        return {} if self.operations is None else {"unit": "operation", "operations": self.rows}

    def tried(self, method: str, parameters: Mapping[str, Any], seed: int, trials: int) -> Tried:
        if self.operations is None:
            return registry.select_and_try(method, self.profile, parameters, seed, trials)
        return try_operations(self.operations, method, parameters, seed, trials)


def _entry(
    name: str, compared: _Compared, parameters: Mapping[str, Any], seed: int, trials: int
) -> dict[str, Any]:
    try:
        tried = compared.tried(name, parameters, seed, trials)
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
    if compared.on is not None:
        entry["on"] = ScoredOn.of(tried.selection, compared.on).to_dict()
    return entry


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
        **scores.to_dict(),
        "interval": None if selection.interval is None else selection.interval.to_dict(),
        "interval_reason": None if because is None else because.to_dict(),
        "warnings": [note.to_dict() for note in (*selection.warnings, *selection.notes)],
        "fair": tried.fair.to_dict(),
        "pareto": False,
        "no_star": None,
    }


def _contender(entry: Mapping[str, Any]) -> Contender:
    return Contender(entry["method"], entry["cost"]["quantity"], Fair(**entry["fair"]))


def _without(name: str, status: str, reason: str, error: AssayError | None = None) -> dict[str, Any]:
    nothing = dict.fromkeys(
        (
            "parameters", "groups", "launches_to_simulate", "cost", "error_percent", "signed_error_percent",
            "group_error_percent", "speedup", "speedup_instructions", "speedup_launches",
            "weighted_cov_percent", "decomposition", "interval", "interval_reason",
            "fair", "no_star",
        )
    )  # fmt: skip
    return {
        "method": name, "status": status, "reason": reason, "error": error and error.to_dict(), **nothing,
        "warnings": [], "pareto": False,
    }  # fmt: skip
