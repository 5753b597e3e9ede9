"""Groups for a whole light run, from the groups of the launches of its window.

Launches of the window keep the group they were given there. Launches of a kernel that the window never
saw are ``unknown``: each of their distinct signatures is a group of its own. All others are classified.

Source: Principal Kernel Analysis, "Two-level profiling"; held-out accuracies and unknown kernels are ours.
Memory: at most 60 bytes a launch, and 900 x 4 bytes a distinct signature of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay_sampling.classifiers import (
    MODEL_NAMES,
    Accuracy,
    Examples,
    Model,
    ModelName,
    chronological_accuracy,
    earlier_launches,
    grouped_accuracy,
    predict_signatures,
    train,
)
from assay_sampling.encoding import Encoder, Signatures, distinct_signatures
from assay_sampling.launches import Launches

_TO_CLASSIFY = -1


@dataclass(frozen=True)
class HeldOut:
    """Accuracies of a model on launches of the window that it was not trained on."""

    chronological: Accuracy
    grouped: Accuracy


@dataclass(frozen=True)
class Labelling:
    """Which group each of n launches is in, by each model.

    ``known``, shape (n,), int32, holds the groups that no model was needed for, and -1 elsewhere;
    ``classified_rows``, shape (c,), are those others, and ``predicted`` their groups by model. Groups
    from ``window_groups`` on are those of unknown signatures; ``unknown_first_rows``, shape (u,), are
    their first launches. Without launches to classify there are no models, and ``chosen`` is None.
    """

    window_groups: int
    known: np.ndarray
    classified_rows: np.ndarray
    unknown_first_rows: np.ndarray
    unknown_launches: int
    ambiguous_percent: float
    predicted: Mapping[ModelName, np.ndarray]
    held_out: Mapping[ModelName, HeldOut]

    @property
    def groups(self) -> int:
        return self.window_groups + len(self.unknown_first_rows)

    @property
    def chosen(self) -> ModelName | None:
        """The model with the best chronological accuracy; of equals, the first in MODEL_NAMES."""
        if not self.predicted:
            return None
        return max(self.predicted, key=lambda name: self.held_out[name].chronological.plain or 0.0)

    @property
    def agreement_percent(self) -> float | None:
        """Share of the classified launches that all models put in one group."""
        if not self.predicted:
            return None
        first, *others = self.predicted.values()
        agreed = np.logical_and.reduce([other == first for other in others])
        return 100.0 * float(agreed.mean())

    def labels(self, model: ModelName | None) -> np.ndarray:
        """Groups of all launches with those of ``model`` where needed: shape (n,), int32."""
        labels = self.known.copy()
        if model is not None:
            labels[self.classified_rows] = self.predicted[model]
        return labels


def label_rest(
    light: Launches, window_rows: np.ndarray, window_labels: np.ndarray, *, seed: int = 0
) -> Labelling:
    """Give every launch of a light run a group.

    Args:
        light: the whole light run, n launches.
        window_rows: rows of the launches whose group is known, shape (w,), ascending, w > 0.
        window_labels: their groups, shape (w,), 0-based.
        seed: for hashing, folds and models.

    Raises MissingExtraError where launches must be classified and scikit-learn is not installed.
    """
    signatures = distinct_signatures(light)
    groups = int(window_labels.max()) + 1
    known = np.full(len(light), _TO_CLASSIFY, np.int32)
    unknown_signature = ~np.isin(
        signatures.columns["kernel_id"],
        np.unique(signatures.columns["kernel_id"][signatures.inverse[window_rows]]),
    )
    # Signatures are numbered by first appearance, and so are the groups of the unknown ones.
    group_of_signature = np.where(
        unknown_signature, groups + np.cumsum(unknown_signature) - 1, _TO_CLASSIFY
    ).astype(np.int32)
    known[:] = group_of_signature[signatures.inverse]
    unknown_launches = int((known >= 0).sum())
    known[window_rows] = window_labels
    classified_rows = np.flatnonzero(known == _TO_CLASSIFY)
    window = _Window.of(light, signatures, window_rows, window_labels, seed)
    predicted: dict[ModelName, np.ndarray] = {}
    held_out: dict[ModelName, HeldOut] = {}
    if len(classified_rows):
        models = [Model(window.encoder, train(name, window.examples, seed=seed)) for name in MODEL_NAMES]
        of_signature = predict_signatures(models, signatures, light.names)
        for name, found in zip(MODEL_NAMES, of_signature, strict=True):
            predicted[name] = found[signatures.inverse[classified_rows]]
            held_out[name] = window.held_out(name)
    return Labelling(
        window_groups=groups,
        known=known,
        classified_rows=classified_rows,
        unknown_first_rows=signatures.first_rows[unknown_signature],
        unknown_launches=unknown_launches,
        ambiguous_percent=window.examples.ambiguous_percent,
        predicted=predicted,
        held_out=held_out,
    )


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

    def held_out(self, name: ModelName) -> HeldOut:
        return HeldOut(
            chronological_accuracy(name, self.earlier, self.later, seed=self.seed),
            grouped_accuracy(name, self.examples, self.signature_hashes, seed=self.seed),
        )
