"""Groups for a whole light run, from the groups of the launches of its window.

Launches of the window keep their group. Launches of a kernel that is not in the window are ``unknown``: each
of their distinct signatures is a separate group. All others are classified, by one model or by the vote of
those of the paper; on request, signatures that it is unsure of become separate groups too.

Source: Principal Kernel Analysis, "Two-level profiling"; held-out accuracies, unknown kernels, the
vote, abstention and the models within kernels are ours.
Memory: at most 70 bytes a launch, and 900 x 4 bytes a distinct signature of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.labelling.classifiers import MODEL_NAMES, ModelName
from assay_sampling.labelling.judging import COMBINED, HeldOut, Judged, LabellerName, Window
from assay_sampling.labelling.light_facts import LightFacts
from assay_sampling.labelling.vote import DEFAULT_LABEL_ACCURACY_PERCENT, Abstention, calibrate
from assay_sampling.labelling.within_kernel import WindowCounters
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import distinct_signatures

LabellerChoice = Literal[
    "best", "sgd", "gaussian_nb", "mlp", "combined", "nearest_light_time", "scaled_counters"
]
# Of equals the first: what labels new signatures best where everything is known (docs/methods/two-level.md).
_PREFERRED: tuple[LabellerName, ...] = ("scaled_counters", "nearest_light_time", *MODEL_NAMES, COMBINED)
_NEEDS: Mapping[LabellerChoice, str] = {
    "nearest_light_time": "durations of every launch of the light run",
    "scaled_counters": "the counters of the window's launches",
}

_TO_CLASSIFY = -1


@dataclass(frozen=True)
class Abstained:
    """Launches of unseen signatures that the vote is unsure of; ``first_rows``, shape (a,), are the first of
    each signature. They are ``apart`` in separate groups, or only counted."""

    abstention: Abstention
    launches: int
    first_rows: np.ndarray
    apart: bool


@dataclass(frozen=True)
class Labelling:
    """Which group each of n launches is in, by each model and by their vote ("combined").

    ``direct_labels``, shape (n,), int32, holds the groups that needed no model, and -1 elsewhere;
    ``classified_rows``, shape (c,), are the launches elsewhere, and ``predicted`` their groups by model.
    Groups from ``window_groups`` on are those of unknown signatures; ``unknown_first_rows``, shape (u,), are
    their first launches; abstained signatures follow if they are apart. Without launches to classify, or
    with no model trained, there are no models, ``chosen`` and ``abstained`` are None, and ``vote_weights`` is
    empty.
    ``classified_unseen_time_percent`` is the share of new signatures in the light time of the launches that
    needed a model (in the launches themselves, where the light run has no durations).
    """

    window_groups: int
    direct_labels: np.ndarray
    classified_rows: np.ndarray
    unknown_first_rows: np.ndarray
    unknown_launches: int
    ambiguous_percent: float
    predicted: Mapping[LabellerName, np.ndarray]
    held_out: Mapping[LabellerName, HeldOut]
    vote_weights: Mapping[ModelName, float]
    abstained: Abstained | None
    chosen: LabellerName | None
    classified_unseen_time_percent: float | None

    @property
    def own_group_rows(self) -> np.ndarray:
        """First launches of the signatures that are separate groups, in the order of the groups."""
        if self.abstained is None or not self.abstained.apart:
            return self.unknown_first_rows
        return np.concatenate([self.unknown_first_rows, self.abstained.first_rows])

    @property
    def groups(self) -> int:
        return self.window_groups + len(self.own_group_rows)

    @property
    def agreement_percent(self) -> float | None:
        """Share of the classified launches that all models put in one group."""
        if not self.predicted or not len(self.classified_rows):
            return None
        first, *others = (self.predicted[name] for name in MODEL_NAMES)
        agreed = np.logical_and.reduce([other == first for other in others])
        return 100.0 * float(agreed.mean())

    def origins(self) -> np.ndarray:
        """How each launch got its group, shape (n,), uint8: numbers of
        :data:`assay_sampling.scoring.error_parts.decomposition.ORIGINS`."""
        origin = np.zeros(len(self.direct_labels), np.uint8)
        origin[self.classified_rows] = 1
        origin[self.direct_labels >= self.window_groups] = 2
        origin[self.direct_labels >= self.window_groups + len(self.unknown_first_rows)] = 3
        return origin

    def labels(self, model: LabellerName | None) -> np.ndarray:
        """Groups of all launches, from ``model`` where one is needed: shape (n,), int32."""
        labels = self.direct_labels.copy()
        if model is not None:
            labels[self.classified_rows] = self.predicted[model]
        return labels


def label_rest(
    light: Launches,
    window_rows: np.ndarray,
    window_labels: np.ndarray,
    *,
    seed: int = 0,
    model: LabellerChoice = "best",
    abstain: bool = False,
    label_accuracy_percent: float = DEFAULT_LABEL_ACCURACY_PERCENT,
    counters: WindowCounters | None = None,
    train: bool = True,
) -> Labelling:
    """Give every launch of a light run a group.

    Args:
        light: the whole light run, n launches.
        window_rows: rows of the launches whose group is known, shape (w,), ascending, w > 0.
        window_labels: their groups, shape (w,), 0-based.
        seed: for hashing, folds and models.
        model: the one whose labels are used; "best" is that of the best expected accuracy.
        abstain: put each unseen signature that the vote is unsure of into a separate group.
        label_accuracy_percent: held-out accuracy that labelled unseen signatures must reach.
        counters: those of the window's launches, which the model ``scaled_counters`` needs.
        train: False where nothing depends on the labels: no model is trained, and launches that need one have
            the group -1.

    Raises RefusedError for a model that needs counters or durations that are not there, MissingExtraError if
    launches must be classified and scikit-learn is not installed, ParameterError for a model that does not
    exist.
    """
    if model not in get_args(LabellerChoice):
        raise ParameterError(
            "model", f"there is no model {model!r}", f"use one of {', '.join(get_args(LabellerChoice))}"
        )
    signatures = distinct_signatures(light)
    facts = LightFacts.of(light, signatures)
    of_window = signatures.inverse[window_rows]
    window = Window.of(
        light, signatures, facts, rows=window_rows, labels=window_labels, counters=counters, seed=seed
    )
    groups = window.groups
    kernels = signatures.columns["kernel_id"]
    unknown = ~np.isin(kernels, np.unique(kernels[of_window]))
    # Signatures are numbered by first appearance, and so are the groups of the unknown ones.
    group_of_signature = np.full(len(signatures), _TO_CLASSIFY, np.int32)
    _number(group_of_signature, unknown, groups)
    counts = np.bincount(signatures.inverse, minlength=len(signatures))
    behind = counts - np.bincount(of_window, minlength=len(signatures))
    judged: Judged | None = None
    abstained: Abstained | None = None
    chosen: LabellerName | None = None
    unseen_share: float | None = None
    if int(behind[~unknown].sum()):
        in_window = np.zeros(len(signatures), bool)
        in_window[of_window] = True
        time = behind * (1.0 if facts.light_ns is None else facts.light_ns)
        unseen_share = float(time[~in_window & ~unknown].sum() / time[~unknown].sum())
    if unseen_share is not None and train:
        judged = Judged.of(window, signatures, facts, light, unseen_share)
        chosen = _chosen(model, judged.held_out, light)
        # The paper's models abstain together, by their vote; the others each by itself.
        labeller = COMBINED if chosen in MODEL_NAMES else chosen
        abstention = calibrate(judged.unseen[labeller], window.examples, label_accuracy_percent)
        doubtful = ~in_window & ~unknown & abstention.abstains(judged.confidence[labeller])
        abstained = Abstained(
            abstention, int(counts[doubtful].sum()), signatures.first_rows[doubtful], abstain
        )
        if abstain:
            _number(group_of_signature, doubtful, groups + int(unknown.sum()))
    direct_labels = group_of_signature[signatures.inverse]
    direct_labels[window_rows] = window_labels
    classified_rows = np.flatnonzero(direct_labels == _TO_CLASSIFY)
    of_classified = signatures.inverse[classified_rows]
    return Labelling(
        window_groups=groups,
        direct_labels=direct_labels,
        classified_rows=classified_rows,
        unknown_first_rows=signatures.first_rows[unknown],
        unknown_launches=int(counts[unknown].sum()),
        ambiguous_percent=window.examples.ambiguous_percent,
        predicted={name: of_signature[of_classified] for name, of_signature in judged.labels.items()}
        if judged
        else {},
        held_out=judged.held_out if judged else {},
        vote_weights=judged.weights if judged else {},
        abstained=abstained,
        chosen=chosen,
        classified_unseen_time_percent=None if unseen_share is None else 100.0 * unseen_share,
    )


def _chosen(
    choice: LabellerChoice, held_out: Mapping[LabellerName, HeldOut], light: Launches
) -> LabellerName:
    """The requested model, else the one of the best expected accuracy.

    Of equals, or where it could not be measured, the best chronological accuracy counts, then the order of
    preference, in which the vote comes last.
    """
    if choice != "best":
        if choice not in held_out:
            raise RefusedError(
                ", ".join(light.sources) or "the light run",
                f"the model {choice} needs {_NEEDS[choice]}",
                "use model=best, or record what it needs",
            )
        return choice

    def worth(name: LabellerName) -> tuple[float, float]:
        accuracy = held_out[name]
        return accuracy.expected or 0.0, accuracy.chronological.plain or 0.0

    return max((name for name in _PREFERRED if name in held_out), key=worth)


def _number(group_of_signature: np.ndarray, chosen: np.ndarray, first: int) -> None:
    """Give each of the chosen signatures a separate group, from ``first`` on."""
    group_of_signature[chosen] = first + np.arange(int(chosen.sum()), dtype=np.int32)
