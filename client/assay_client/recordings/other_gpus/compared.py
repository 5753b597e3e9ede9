"""Comparing on other GPUs: each recording is matched once, then every method is scored on all of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from assay_client.recordings.units import UnitChoice, misaligned_launches
from assay_sampling.errors import AssayError, MisalignedError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import whole_cost
from assay_sampling.methods.by_operation import OperationProfile, operation_profile
from assay_sampling.methods.choosing.across_gpus import AtSpeedup, at_speedup, draws_for
from assay_sampling.notes.registry import in_unit, make_note
from assay_sampling.operations.collapsing import knows_operations
from assay_sampling.parameters import Unit, WeightKind
from assay_sampling.running.identity import condition_conflict
from assay_sampling.scoring.by_operation import SelectedCalls, place_matched
from assay_sampling.scoring.carried import score_on
from assay_sampling.scoring.evaluation import Evaluation
from assay_sampling.scoring.matching import on_the_same_gpu, source_of
from assay_sampling.scoring.selection import ProfileSummary, Selection
from assay_sampling.scoring.targets.judging import no_star_elsewhere, recommend_elsewhere
from assay_sampling.scoring.targets.matched import Target, Workload
from assay_sampling.scoring.weights import light_time_of_profile


@dataclass(frozen=True)
class GivenTarget:
    """A recording of another GPU: matched, or refused with the reason."""

    profile: Profile
    target: Target | None
    error: AssayError | None = None

    def to_dict(self) -> dict[str, Any]:
        target, error = self.target, self.error
        match = None if target is None or target.alignment is None else target.alignment.match_percent
        operation_match = None if target is None else target.match
        return {
            "name": source_of(self.profile.whole),
            "status": "ok" if error is None else "refused",
            "reason": "" if error is None else error.explained,
            "error": error and error.to_dict(),
            "profile": ProfileSummary.of(self.profile.whole).document().to_dict(),
            "match_percent": match,
            "operations": None if operation_match is None else operation_match.to_dict(),
            "differences": [] if operation_match is None else list(operation_match.differences),
        }


@dataclass(frozen=True)
class ScoredOn:
    """The scores of a method's own selection on another recording, by the weights that ``assay evaluate``
    takes there; without them ``reason`` and ``error`` say why."""

    name: str
    status: Literal["ok", "refused"]
    reason: str = ""
    error: AssayError | None = None
    weights: str | None = None
    error_percent: float | None = None
    signed_error_percent: float | None = None
    group_error_percent: float | None = None
    part_error_percent: float | None = None
    speedup: float | None = None
    operations: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, selection: Selection, other: GivenTarget, reference: Profile) -> ScoredOn:
        name = source_of(other.profile.whole)
        if other.target is None:
            assert other.error is not None
            return cls(name, "refused", other.error.explained, other.error)
        kind = _weights_there(selection, other.target)
        try:
            evaluation = _evaluation(selection, other.target, reference, kind)
            part = other.target.score(selection, kind).part_error_percent
        except AssayError as error:
            return cls(name, "refused", error.explained, error)
        target = other.target
        operations = None
        if target.match is not None and target.operations is not None:
            operations = {"calls": len(target.operations), **target.match.to_dict()}
        return cls(
            name=name,
            status="ok",
            weights=kind,
            error_percent=evaluation.error_percent,
            signed_error_percent=evaluation.signed_error_percent,
            group_error_percent=evaluation.group_error_percent,
            part_error_percent=part,
            speedup=evaluation.speedup,
            operations=operations,
        )

    def to_dict(self) -> dict[str, Any]:
        document = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            **document,
            "error": self.error and self.error.to_dict(),
            "operations": None if self.operations is None else dict(self.operations),
        }


def _evaluation(selection: Selection, target: Target, reference: Profile, kind: WeightKind) -> Evaluation:
    if target.operations is not None and target.match is not None:
        placed = place_matched(SelectedCalls.of(selection), target.operations, target.match)
        return placed.scores().scores[kind]
    assert target.alignment is not None
    return score_on(
        selection,
        target.launches,
        reference=reference.whole,
        alignments={"name_block": target.alignment},
        weights=kind,
    )[0]


def _weights_there(selection: Selection, target: Target) -> WeightKind:
    """Those for elsewhere, but on the selection's own GPU under its own condition those for here."""
    launches = target.launches
    same_gpu = on_the_same_gpu(selection.profile.document(), launches) is not False
    same = condition_conflict(selection.evaluation.condition, launches.metadata.condition) is None
    own = selection.profile.origin == launches.metadata.origin and same_gpu and same
    return selection.weights.here if own else selection.weights.elsewhere


@dataclass(frozen=True)
class Compared:
    """What is compared: a profile, its operations where they are selected, and the recordings of other
    GPUs."""

    profile: Profile
    operations: OperationProfile | None
    on: tuple[GivenTarget, ...] = ()

    @classmethod
    def of(cls, profile: Profile, choice: UnitChoice, on: Sequence[Profile]) -> Compared:
        """Match every recording, by launch unless told otherwise.

        "auto" takes operations where some of the others launch something else and know operations, as the
        profile does. A recording that cannot be matched is refused, with the reason.
        """
        if choice != "operation":
            targets = _by_launch(profile, on)
            if choice == "launch" or not _should_be_by_operation(profile, targets):
                return cls(profile, None, targets)
        operations = operation_profile(profile)
        return cls(profile, operations, _by_operation(operations, on))

    @property
    def unit(self) -> Unit:
        return "launch" if self.operations is None else "operation"

    @property
    def rows(self) -> int:
        """How many launches or operations the methods choose from."""
        return len(self.divided.whole)

    @property
    def divided(self) -> Profile:
        """The profile that methods select on: of launches or of operations."""
        return self.profile if self.operations is None else self.operations.profile

    @property
    def targets(self) -> list[Target]:
        """Those that could be matched."""
        return [each.target for each in self.on if each.target is not None]

    def unit_part(self) -> dict[str, Any]:
        return {} if self.operations is None else {"unit": "operation", "operations": self.rows}

    def scored_on(self, selection: Selection) -> list[dict[str, Any]]:
        return [ScoredOn.of(selection, each, self.profile).to_dict() for each in self.on]


def _workload(profile: Profile) -> tuple[Workload, str]:
    return Workload.of(profile.whole, light_time_of_profile(profile)), whole_cost(profile).quantity


def _by_launch(profile: Profile, on: Sequence[Profile]) -> tuple[GivenTarget, ...]:
    if not on:
        return ()
    workload, quantity = _workload(profile)
    targets = []
    for other in on:
        try:
            targets.append(
                GivenTarget(other, Target.by_launch(workload, profile.whole, other.whole, quantity))
            )
        except MisalignedError as error:
            targets.append(GivenTarget(other, None, misaligned_launches(error, profile.whole, other.whole)))
        except AssayError as error:
            targets.append(GivenTarget(other, None, error))
    return tuple(targets)


def _by_operation(operations: OperationProfile, on: Sequence[Profile]) -> tuple[GivenTarget, ...]:
    if not on:
        return ()
    workload, quantity = _workload(operations.profile)
    time = workload.light_time
    if time is None:
        time = whole_cost(operations.profile).values
    targets = []
    for other in on:
        try:
            targets.append(
                GivenTarget(
                    other, Target.by_operation(workload, operations.whole, time, other.whole, quantity)
                )
            )
        except AssayError as error:
            targets.append(GivenTarget(other, None, error))
    return tuple(targets)


def _should_be_by_operation(profile: Profile, by_launch: Sequence[GivenTarget]) -> bool:
    """Whether operations can match a recording that launches cannot."""
    misaligned = [each.profile for each in by_launch if isinstance(each.error, MisalignedError)]
    return knows_operations(profile.whole) and any(knows_operations(each.whole) for each in misaligned)


@dataclass(frozen=True)
class Judged:
    """Every method with both kinds of weights on the other GPUs at one speedup, and the verdict on them.

    ``document`` is the part of the comparison; ``stars``: of each method, None for a star, else the reason
    against it.
    """

    document: dict[str, Any]
    stars: dict[str, dict[str, Any] | None]
    recommendation: dict[str, Any]


def judge(
    compared: Compared,
    entries: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Mapping[str, Any]],
    *,
    seed: int,
    draws: int | None,
    speedup: float | None,
) -> Judged:
    """Score the methods of ``entries`` that apply; ``speedup`` None takes the median of their own."""
    applying = [entry for entry in entries if entry["status"] == "ok"]
    own = statistics.median(entry["speedup"] for entry in applying)
    common_speedup = _rounded(own) if speedup is None else speedup
    count = draws_for(compared.rows) if draws is None else draws
    rows: list[dict[str, Any]] = []
    scored: list[tuple[AtSpeedup, dict[str, Any]]] = []
    for entry in applying:
        name = entry["method"]
        options = parameters.get(name, {})
        groups: dict[int, Any] = {}
        for weights in [options["weights"]] if "weights" in options else entry["weight_kinds"]:
            try:
                score = at_speedup(
                    name,
                    compared.divided,
                    compared.targets,
                    parameters=options,
                    weights=weights,
                    speedup=common_speedup,
                    seed=seed,
                    draws=count,
                    groups=groups,
                )
            except AssayError as error:
                rows.append(_without(name, weights, error))
            else:
                rows.append(_row(score))
                scored.append((score, rows[-1]))
    contenders = [each.contender() for each, _ in scored]
    for contender, (_, row) in zip(contenders, scored, strict=True):
        note = no_star_elsewhere(contender, contenders, common_speedup)
        row["star"], row["no_star"] = note is None, note and in_unit(note, compared.unit).to_dict()
    advice, best = recommend_elsewhere(contenders, len(compared.targets), common_speedup)
    choice = None if best is None else scored[contenders.index(best)][0]
    names = [each.name for each in compared.targets]
    return Judged(
        document={"speedup": common_speedup, "draws": count, "targets": names, "rows": rows},
        stars=_stars(rows),
        recommendation={
            **advice.in_unit(compared.unit).to_dict(),
            "weights": choice and choice.weights,
            "parameters": None if choice is None else dict(choice.parameters),
        },
    )


def _row(score: AtSpeedup) -> dict[str, Any]:
    worst = score.contender()
    return {
        "method": score.method,
        "weights": score.weights,
        "status": "ok",
        "reason": "",
        "error": None,
        "parameters": dict(score.parameters),
        "draws": score.draws,
        "launches_to_simulate": score.launches,
        "speedup": score.speedup,
        "worst_error_percent": worst.worst_error_percent,
        "worst_part_error_percent": worst.worst_part_error_percent,
        "mean_error_percent": worst.mean_error_percent,
        "mean_part_error_percent": worst.mean_part_error_percent,
        "targets": [
            {
                "error_percent": each.error_percent,
                "part_error_percent": each.part_error_percent,
                "mean_signed_error_percent": each.mean_signed_error_percent,
            }
            for each in score.there
        ],
        "star": False,
        "no_star": None,
    }


def _without(name: str, weights: WeightKind, error: AssayError) -> dict[str, Any]:
    nothing = dict.fromkeys(
        (
            "parameters", "draws", "launches_to_simulate", "speedup", "worst_error_percent",
            "worst_part_error_percent", "mean_error_percent", "mean_part_error_percent", "no_star",
        )
    )  # fmt: skip
    return {
        "method": name, "weights": weights, "status": "refused", "reason": error.explained,
        "error": error.to_dict(), **nothing, "targets": [], "star": False,
    }  # fmt: skip


def _stars(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any] | None]:
    """A method has a star if one of its rows has; else the reason against the first of them."""
    stars: dict[str, dict[str, Any] | None] = {}
    for row in rows:
        against = row["no_star"]
        if row["status"] != "ok":
            against = make_note("not_scored_elsewhere", reason=row["reason"]).to_dict()
        if against is None or row["method"] not in stars:
            stars[row["method"]] = against
    return stars


def _rounded(speedup: float) -> float:
    """To two digits, and at least 1."""
    digits = 1 - math.floor(math.log10(max(speedup, 1.0)))
    return max(round(speedup, digits), 1.0)
