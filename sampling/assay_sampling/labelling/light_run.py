"""Groups for a whole light run, from the groups of the launches of its window.

Launches of the window keep their group. Launches of a kernel that is not in the window are ``unknown``: each
of their distinct signatures is a separate group. All others are classified, by one model or by the vote of
all; on request, signatures that the vote is unsure of become separate groups too.

Source: Principal Kernel Analysis, "Two-level profiling"; held-out accuracies, unknown kernels, the vote and
abstention are ours.
Memory: at most 60 bytes a launch, and 900 x 4 bytes a distinct signature of the window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from assay_sampling.errors import ParameterError
from assay_sampling.labelling.classifiers import (
    MODEL_NAMES,
    NOTHING_HELD_OUT,
    Accuracy,
    Answers,
    Examples,
    Model,
    ModelName,
    answer_signatures,
    chronological_answers,
    earlier_launches,
    grouped_answers,
    train,
)
from assay_sampling.labelling.encoding import Encoder
from assay_sampling.labelling.vote import (
    DEFAULT_LABEL_ACCURACY_PERCENT,
    Abstention,
    Vote,
    calibrate,
    vote,
    vote_weights,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import Signatures, distinct_signatures

COMBINED: Literal["combined"] = "combined"
LabellerName = Literal["sgd", "gaussian_nb", "mlp", "combined"]
LabellerChoice = Literal["best", "sgd", "gaussian_nb", "mlp", "combined"]

_TO_CLASSIFY = -1


@dataclass(frozen=True)
class HeldOut:
    """Accuracies of a model on launches of the window that it was not trained on."""

    chronological: Accuracy
    grouped: Accuracy


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

    ``known``, shape (n,), int32, holds the groups that needed no model, and -1 elsewhere;
    ``classified_rows``, shape (c,), are the launches elsewhere, and ``predicted`` their groups by model.
    Groups from ``window_groups`` on are those of unknown signatures; ``unknown_first_rows``, shape (u,), are
    their first launches; abstained signatures follow if they are apart. Without launches to classify there
    are no models, ``chosen`` and ``abstained`` are None, and ``vote_weights`` is empty.
    """

    window_groups: int
    known: np.ndarray
    classified_rows: np.ndarray
    unknown_first_rows: np.ndarray
    unknown_launches: int
    ambiguous_percent: float
    predicted: Mapping[LabellerName, np.ndarray]
    held_out: Mapping[LabellerName, HeldOut]
    vote_weights: Mapping[ModelName, float]
    abstained: Abstained | None
    choice: LabellerChoice = "best"

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
    def chosen(self) -> LabellerName | None:
        """The requested one, else that of the best chronological accuracy; of equals, the first, and the vote
        only if it is better than every model."""
        if not self.predicted:
            return None
        if self.choice != "best":
            return self.choice
        return max(self.predicted, key=lambda name: self.held_out[name].chronological.plain or 0.0)

    @property
    def agreement_percent(self) -> float | None:
        """Share of the classified launches that all models put in one group."""
        if not self.predicted or not len(self.classified_rows):
            return None
        first, *others = (self.predicted[name] for name in MODEL_NAMES)
        agreed = np.logical_and.reduce([other == first for other in others])
        return 100.0 * float(agreed.mean())

    def origins(self) -> np.ndarray:
        """How each launch got its group: numbers of ORIGINS, shape (n,), uint8."""
        found = np.zeros(len(self.known), np.uint8)
        found[self.classified_rows] = 1
        found[self.known >= self.window_groups] = 2
        found[self.known >= self.window_groups + len(self.unknown_first_rows)] = 3
        return found

    def labels(self, model: LabellerName | None) -> np.ndarray:
        """Groups of all launches, from ``model`` where one is needed: shape (n,), int32."""
        labels = self.known.copy()
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
) -> Labelling:
    """Give every launch of a light run a group.

    Args:
        light: the whole light run, n launches.
        window_rows: rows of the launches whose group is known, shape (w,), ascending, w > 0.
        window_labels: their groups, shape (w,), 0-based.
        seed: for hashing, folds and models.
        model: the one whose labels are used.
        abstain: put each unseen signature that the vote is unsure of into a separate group.
        label_accuracy_percent: held-out accuracy that labelled unseen signatures must reach.

    Raises MissingExtraError if launches must be classified and scikit-learn is not installed, ParameterError
    for a model that does not exist.
    """
    if model not in get_args(LabellerChoice):
        raise ParameterError(
            "model", f"there is no model {model!r}", f"use one of {', '.join(get_args(LabellerChoice))}"
        )
    signatures = distinct_signatures(light)
    of_window = signatures.inverse[window_rows]
    window = _Window.of(light, signatures, window_rows, window_labels, seed)
    groups = int(window_labels.max()) + 1
    kernels = signatures.columns["kernel_id"]
    unknown = ~np.isin(kernels, np.unique(kernels[of_window]))
    # Signatures are numbered by first appearance, and so are the groups of the unknown ones.
    group_of_signature = np.full(len(signatures), _TO_CLASSIFY, np.int32)
    _number(group_of_signature, unknown, groups)
    counts = np.bincount(signatures.inverse, minlength=len(signatures))
    judged: _Judged | None = None
    abstained: Abstained | None = None
    if len(window_rows) + int(counts[unknown].sum()) < len(light):
        judged = _Judged.of(window, signatures, light, groups, label_accuracy_percent)
        seen = np.zeros(len(signatures), bool)
        seen[of_window] = True
        doubtful = ~seen & ~unknown & judged.abstention.abstains(judged.confidence)
        abstained = Abstained(
            judged.abstention, int(counts[doubtful].sum()), signatures.first_rows[doubtful], abstain
        )
        if abstain:
            _number(group_of_signature, doubtful, groups + int(unknown.sum()))
    known = group_of_signature[signatures.inverse]
    known[window_rows] = window_labels
    classified_rows = np.flatnonzero(known == _TO_CLASSIFY)
    of_classified = signatures.inverse[classified_rows]
    return Labelling(
        window_groups=groups,
        known=known,
        classified_rows=classified_rows,
        unknown_first_rows=signatures.first_rows[unknown],
        unknown_launches=int(counts[unknown].sum()),
        ambiguous_percent=window.examples.ambiguous_percent,
        predicted={name: found[of_classified] for name, found in judged.labels.items()} if judged else {},
        held_out=judged.held_out if judged else {},
        vote_weights=judged.weights if judged else {},
        abstained=abstained,
        choice=model,
    )


def _number(group_of_signature: np.ndarray, chosen: np.ndarray, first: int) -> None:
    """Give each of the chosen signatures a separate group, from ``first`` on."""
    group_of_signature[chosen] = first + np.arange(int(chosen.sum()), dtype=np.int32)


@dataclass(frozen=True)
class _Judged:
    """The answers of each model and of their vote for every signature, shape (m,), and how good each is."""

    labels: Mapping[LabellerName, np.ndarray]
    confidence: np.ndarray
    held_out: Mapping[LabellerName, HeldOut]
    weights: Mapping[ModelName, float]
    abstention: Abstention

    @classmethod
    def of(
        cls, window: _Window, signatures: Signatures, light: Launches, groups: int, accuracy_percent: float
    ) -> _Judged:
        models = [
            Model(window.encoder, train(name, window.examples, seed=window.seed)) for name in MODEL_NAMES
        ]
        later, unseen = window.held_out_answers(groups)
        held_out: dict[LabellerName, HeldOut] = {
            name: HeldOut(window.accuracy_later(a), window.accuracy_unseen(b))
            for name, a, b in zip(MODEL_NAMES, later, unseen, strict=True)
        }
        chronological = [held_out[name].chronological.plain for name in MODEL_NAMES]
        grouped = [held_out[name].grouped.plain for name in MODEL_NAMES]
        # The vote is judged with weights from the other way of holding out: its own would flatter it.
        held_out[COMBINED] = HeldOut(
            window.accuracy_later(_vote_or_none(later, vote_weights(grouped, groups))),
            window.accuracy_unseen(_vote_or_none(unseen, vote_weights(chronological, groups))),
        )
        weights = vote_weights([_mean(pair) for pair in zip(chronological, grouped, strict=True)], groups)
        labels = {name: np.empty(len(signatures), np.int32) for name in (*MODEL_NAMES, COMBINED)}
        confidence = np.empty(len(signatures))
        for part, answers in answer_signatures(models, signatures, light.names, groups):
            combined = vote(answers, weights)
            labels[COMBINED][part], confidence[part] = combined.labels, combined.confidence
            for name, each in zip(MODEL_NAMES, answers, strict=True):
                labels[name][part] = each.labels
        return cls(
            labels=labels,
            confidence=confidence,
            held_out=held_out,
            weights=dict(zip(MODEL_NAMES, weights.tolist(), strict=True)),
            abstention=calibrate(_vote_or_none(unseen, weights), window.examples, accuracy_percent),
        )


def _vote_or_none(answers: Sequence[Answers | None], weights: np.ndarray) -> Vote | None:
    given = [each for each in answers if each is not None]
    return vote(given, weights) if len(given) == len(answers) else None


def _mean(accuracies: tuple[float | None, float | None]) -> float | None:
    known = [each for each in accuracies if each is not None]
    return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class _Window:
    """The window's launches as examples: all, the earlier and the later ones."""

    encoder: Encoder
    examples: Examples
    earlier: Examples
    later: Examples
    signature_hashes: np.ndarray
    seed: int

    @classmethod
    def of(
        cls,
        light: Launches,
        signatures: Signatures,
        window_rows: np.ndarray,
        window_labels: np.ndarray,
        seed: int,
    ) -> _Window:
        used, of_launch, weights = np.unique(
            signatures.inverse[window_rows], return_inverse=True, return_counts=True
        )
        columns = signatures.take(used)
        encoder = Encoder.fit(columns, light.names, weights=weights.astype(np.float64), seed=seed)
        features, numeric = encoder.transform(columns), encoder.numeric
        early = earlier_launches(light.column("process")[window_rows])
        everything, earlier, later = (
            Examples.of(features, numeric, of_launch[chosen], window_labels[chosen])
            for chosen in (slice(None), early, ~early)
        )
        return cls(encoder, everything, earlier, later, signatures.hashes()[used], seed)

    def held_out_answers(self, groups: int) -> tuple[list[Answers | None], list[Answers | None]]:
        """Each model's answers for the later launches, and for signatures that it had not seen."""
        later = [
            chronological_answers(name, self.earlier, self.later, groups=groups, seed=self.seed)
            for name in MODEL_NAMES
        ]
        unseen = [
            grouped_answers(name, self.examples, self.signature_hashes, groups=groups, seed=self.seed)
            for name in MODEL_NAMES
        ]
        return later, unseen

    def accuracy_later(self, found: Answers | Vote | None) -> Accuracy:
        return _accuracy(found, self.later)

    def accuracy_unseen(self, found: Answers | Vote | None) -> Accuracy:
        return _accuracy(found, self.examples)


def _accuracy(found: Answers | Vote | None, examples: Examples) -> Accuracy:
    if found is None:
        return NOTHING_HELD_OUT
    return Accuracy.of(examples.label, found.labels, examples.weight)
