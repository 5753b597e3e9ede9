"""Groups of a detailed window carried to a light run, and the selection that they make.

Source: docs/methods/two-level.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from assay_sampling.labelling.judging import LabellerName
from assay_sampling.labelling.light_run import Labelling
from assay_sampling.launches.alignment import (
    Alignment,
    match_flags,
)
from assay_sampling.launches.in_memory import EXACT_IDENTITY, Launches
from assay_sampling.launches.overlap import overlap_of
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.row_hash import hash_rows
from assay_sampling.methods.groups.group_draws import (
    ChosenLaunches,
    by_rule,
    choose_automatically,
    choose_launches,
    drawn_by_light_time,
    drawn_uniformly,
    within_budget,
)
from assay_sampling.methods.groups.weighted_median import weighted_median_rows
from assay_sampling.methods.pks.carried_groups import CarriedGroups
from assay_sampling.methods.pks.choices import choice_notes
from assay_sampling.methods.pks.principal_kernels import (
    PrincipalKernels,
    nearest_groups,
)
from assay_sampling.notes.registry import distinct_notes
from assay_sampling.scoring.error_parts.cells import kernel_and_size, only_groups
from assay_sampling.scoring.error_parts.decomposition import ORIGINS, UNKNOWN_GROUP, GroupFacts
from assay_sampling.scoring.evaluation import Cost, Evaluation, evaluate
from assay_sampling.scoring.selection import ProfileSummary, Representatives, Selection
from assay_sampling.scoring.weights import light_time_of_profile, weigh


def labels_used(carried: CarriedGroups | None) -> bool:
    """Whether labels of models decide groups: without kernel and size, or where counters divide these."""
    return carried is None or carried.split.k > 1


@dataclass(frozen=True)
class TwoLevelGroups:
    """Everything that is known once every light launch has a group. ``parameters`` are those of the call that
    made them, ``spread`` is K and the window's error of further seeds if they were asked for."""

    profile: Profile
    detailed: Launches
    light: Launches
    light_cost: Cost
    alignment: Alignment
    window: PrincipalKernels
    labelling: Labelling
    unseen_time_percent: float
    weighted_group_error_percent: float | None
    carried: CarriedGroups | None
    parameters: Mapping[str, Any]
    seed: int
    spread: list[dict[str, Any]] | None

    @property
    def labels_used(self) -> bool:
        return labels_used(self.carried)

    @property
    def representative_rows(self) -> np.ndarray:
        """Rows of the light run, one a group: the window's representatives, then own signatures."""
        of_window = self.alignment.right_rows[self.window.representative_rows]
        return np.concatenate([of_window, self.labelling.own_group_rows])

    def counts(self, labels: np.ndarray) -> np.ndarray:
        return np.bincount(labels, minlength=self.labelling.groups)

    def evaluation(self, labels: np.ndarray) -> Evaluation:
        """Score on the whole light run, with these labels."""
        return evaluate(
            self.light_cost,
            self.representative_rows,
            self.counts(labels).astype(np.float64),
            labels=labels,
            representative_groups=np.arange(self.labelling.groups),
        )

    def selection(self, **drawing: Any) -> Selection:
        """Representatives, weights, labels and evaluation of the light run; ``extra`` holds ``two_level`` and
        the window's ``sweep`` and ``pca_components``. ``drawing``: launches_per_group, least_speedup and
        weights in place of those of the call that made the groups."""
        parameters, seed, spread = {**self.parameters, **drawing}, self.seed, self.spread
        by_kernel = None if self.carried is None else self.carried.groups
        labels = self.labelling.labels(self.labelling.chosen) if by_kernel is None else by_kernel.labels
        counts = np.bincount(labels, minlength=self.labelling.groups if by_kernel is None else 0)
        chosen = within_budget(
            lambda several: self.choose(parameters, labels, counts, several, seed),
            labels,
            self.light_cost.values,
            parameters["least_speedup"],
            parameters["launches_per_group"],
        )
        groups = labels[chosen.rows]
        origins = self.labelling.origins() if self.carried is None else self.carried.origins(self.labelling)
        right = self.right_groups(origins, labels)
        # A new signature of a known kernel adds its own light time to the group that its label names.
        weighing = weigh(
            self.profile,
            labels,
            chosen.rows,
            here="launches",
            requested_kind=parameters["weights"],
            drawing=chosen.drawing,
        )
        return Selection(
            method="pks",
            parameters=parameters,
            seed=seed,
            profile=replace(
                ProfileSummary.of(self.light),
                sources=(*self.detailed.sources, *self.light.sources),
                notes=distinct_notes((*self.detailed.notes, *self.light.notes)),
            ),
            representatives=Representatives.at(self.light, chosen.rows, groups, chosen.weights),
            group_launches=counts,
            evaluation=evaluate(
                self.light_cost,
                chosen.rows,
                chosen.weights,
                labels=labels,
                representative_groups=groups,
                facts=GroupFacts(kernel_and_size(self.light), origins, right=right),
            ),
            labels=labels,
            label_origins=origins,
            right_labels=right,
            interval=chosen.interval,
            interval_reason=chosen.interval_reason,
            drawing=chosen.drawing,
            warnings=(
                *choice_notes(self.detailed, parameters["features"], self.window.evaluation),
                *(() if by_kernel is None else by_kernel.notes()),
                *weighing.warnings,
            ),
            light_time_weights=weighing.light_time,
            weights=weighing.rule,
            extra={
                "sweep": [asdict(entry) for entry in self.window.sweep],
                "pca_components": self.window.pca_components,
                **({} if spread is None else {"seeds": spread}),
                **({} if by_kernel is None else {"grouping": by_kernel.facts()}),
                "two_level": self.facts(),
            },
        )

    def right_groups(self, origins: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
        """The groups that counters give, shape (n,), of launches that a model labelled: by their own counters
        where the light run has them, else by those of launches of the same kernel, grid and block in the
        window, if all of these are in one group. None where no model labelled any."""
        of_models = origins == ORIGINS.index("model")
        if not of_models.any():
            return None
        right = np.full(len(origins), UNKNOWN_GROUP, np.int64)
        rows = self.alignment.right_rows
        by_window = only_groups(hash_rows([self.light.column(name) for name in EXACT_IDENTITY]), rows, labels)
        right[of_models] = by_window[of_models]
        names = self.window.features
        if self.carried is None and set(names) <= set(self.light.counters):
            measured = np.logical_and.reduce([~np.isnan(self.light.column(name)) for name in names])
            own = np.flatnonzero(of_models & measured)
            if len(own):
                right[own] = nearest_groups(self.window, self.light.take(own))
        return right

    def choose(
        self, parameters: Mapping[str, Any], labels: np.ndarray, counts: np.ndarray, per_group: int, seed: int
    ) -> ChosenLaunches:
        """The launches that stand for the groups, by rule or drawn as the parameters say."""
        rule, weights = parameters["representative"], parameters["weights"]
        light_time = light_time_of_profile(self.profile) if weights != "launches" else None
        if rule == "auto":
            return choose_automatically(
                labels, self.light_cost, light_time, per_group=per_group, seed=seed
            )  # fmt: skip
        if rule == "weighted_median" and per_group == 1:
            time = self.light_cost.values if light_time is None else light_time
            return by_rule(labels, weighted_median_rows(labels, time))
        if weights == "light_time" and light_time is not None and (per_group > 1 or rule == "random"):
            return drawn_by_light_time(labels, light_time, per_group=per_group, seed=seed)
        if self.carried is None:
            return choose_launches(
                labels, counts, self.representative_rows, self.light_cost, per_group=per_group, seed=seed
            )
        if per_group > 1 or rule == "random":
            return drawn_uniformly(labels, self.light_cost, per_group=per_group, seed=seed)
        return by_rule(labels, self.carried.first_or_nearest(rule))

    def facts(self) -> dict[str, Any]:
        labelling = self.labelling
        overlap = overlap_of(self.light)
        return {
            "window": self.window_facts(),
            "match_percent": self.alignment.match_percent,
            "match_kind": self.alignment.kind,
            "models": {name: self.model_facts(name) for name in labelling.predicted} or None,
            "chosen_model": labelling.chosen,
            "labels_used": self.labels_used,
            "classified_unseen_time_percent": labelling.classified_unseen_time_percent,
            "vote_weights": dict(labelling.vote_weights) or None,
            "agreement_percent": labelling.agreement_percent,
            "ambiguous_percent": labelling.ambiguous_percent,
            "unknown": {
                "launches": labelling.unknown_launches,
                "groups": len(labelling.unknown_first_rows)
                if self.carried is None
                else self.carried.unknown_groups(labelling),
            },
            "unseen_time_percent": self.unseen_time_percent,
            "abstained": self.abstained_facts(),
            "classified_launches": len(labelling.classified_rows),
            "span_ns": overlap and overlap.span_ns,
            "overlap_percent": overlap and overlap.overlap_percent,
            "flags": [
                *(["concurrent_launches"] if overlap is not None and overlap.concurrent else []),
                *match_flags(self.alignment.kind),
            ],
        }

    def window_facts(self) -> dict[str, Any]:
        """The window's numbers, in its own cost and condition."""
        scores = self.window.evaluation.to_dict()
        return {
            "launches": len(self.detailed),
            "matched_launches": len(self.alignment.left_rows),
            "first_launch": int(self.detailed.column("launch")[0]),
            "slices": max(len(self.alignment.by_range), 1),
            "weighted_group_error_percent": self.weighted_group_error_percent,
            "k": self.window.k,
            **scores,
        }

    def abstained_facts(self) -> dict[str, Any] | None:
        """Launches that the vote of the models is unsure of; None if there was nothing to label."""
        abstained = self.labelling.abstained
        if abstained is None:
            return None
        return {
            "launches": abstained.launches,
            "signatures": len(abstained.first_rows),
            "groups": len(abstained.first_rows) if abstained.apart else 0,
            "threshold": abstained.abstention.threshold,
            "held_out_accuracy_percent": abstained.abstention.accuracy_percent,
            "held_out_abstained_percent": abstained.abstention.abstained_percent,
        }

    def model_facts(self, name: LabellerName) -> dict[str, Any]:
        """A model's scores on held-out launches of the window, and on the whole workload."""
        held_out = self.labelling.held_out[name]
        evaluation = self.evaluation(self.labelling.labels(name))
        return {
            "chronological_accuracy_percent": held_out.chronological.plain,
            "chronological_balanced_accuracy_percent": held_out.chronological.balanced,
            "grouped_accuracy_percent": held_out.grouped.plain,
            "grouped_balanced_accuracy_percent": held_out.grouped.balanced,
            "expected_accuracy_percent": held_out.expected,
            "error_percent": evaluation.error_percent,
            "signed_error_percent": evaluation.signed_error_percent,
            "group_error_percent": evaluation.group_error_percent,
            "speedup": evaluation.speedup,
        }
