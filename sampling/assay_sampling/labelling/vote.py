"""Several models as one: a vote weighted by held-out accuracy, and when it should abstain.

The weight of a model is the log odds of its held-out accuracy a against guessing among g groups,
log(a / (1 - a)) + log(g - 1): for models that err independently that is the best weighted vote.

The confidence of an answer is the weighted mean of the probabilities that the models give it. Models are
sure of themselves even far from their training data, so the confidence alone means little: a threshold is
calibrated on signatures that the models had not seen.

Source: Nitzan and Paroush, International Economic Review 1982 (weights); Zhu et al., Statistics and Its
Interface 2009 (the term for g groups); Chow, IEEE Transactions on Information Theory 1970 (abstention).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay_sampling.labelling.classifiers import Answers, Examples

_LEAST_ACCURACY = 0.001
_MOST_NEEDED = 100
DEFAULT_LABEL_ACCURACY_PERCENT = 95.0


@dataclass(frozen=True)
class Vote:
    """Group of the weighted vote for each of r launches, and its confidence in [0, 1], both shape (r,)."""

    labels: np.ndarray
    confidence: np.ndarray


@dataclass(frozen=True)
class Abstention:
    """The confidence below which an unseen signature is not labelled, and the effect on held-out ones.

    ``threshold`` 0 labels all; None labels none: no confidence reaches the requested accuracy, or too little
    could be held out to tell. ``accuracy_percent`` is that of the held-out signatures that are labelled,
    ``abstained_percent`` the share that is not; None if nothing could be held out.
    """

    threshold: float | None
    accuracy_percent: float | None
    abstained_percent: float | None

    def abstains(self, confidence: np.ndarray) -> np.ndarray:
        """Which answers with these confidences, shape (r,), are withheld."""
        if self.threshold is None:
            return np.ones(len(confidence), bool)
        below: np.ndarray = confidence < self.threshold
        return below


def vote_weights(accuracies_percent: Sequence[float | None], groups: int) -> np.ndarray:
    """Weight of each model, shape (models,), adding up to 1; equal if no accuracy is better than chance.

    An accuracy of None (nothing held out) gives no weight.
    """
    weights = np.zeros(len(accuracies_percent))
    for index, accuracy in enumerate(accuracies_percent):
        if accuracy is None:
            continue
        share = min(max(accuracy / 100, _LEAST_ACCURACY), 1 - _LEAST_ACCURACY)
        weights[index] = max(0.0, math.log(share / (1 - share)) + math.log(max(groups - 1, 1)))
    whole = float(weights.sum())
    return weights / whole if whole > 0 else np.full(len(weights), 1 / len(weights))


def vote(answers: Sequence[Answers], weights: np.ndarray) -> Vote:
    """The group with the most weight behind it; of equals, that of the model with the largest weight."""
    labels = np.stack([each.labels for each in answers])
    order = np.argsort(-weights, kind="stable")
    behind = np.stack([((labels == labels[index]) * weights[:, None]).sum(axis=0) for index in order])
    # Sums of the same weights in another order differ in their last digits, but count as equal.
    winner = order[np.round(behind, 12).argmax(axis=0)]
    rows = np.arange(labels.shape[1])
    chosen = labels[winner, rows]
    confidence = sum(
        weight * each.probabilities[rows, chosen] for weight, each in zip(weights, answers, strict=True)
    )
    return Vote(chosen, np.asarray(confidence, np.float64))


def calibrate(answers: Vote | None, examples: Examples, accuracy_percent: float) -> Abstention:
    """The lowest threshold above which ``accuracy_percent`` of held-out signatures get their true group.

    Args:
        answers: the vote on each example, by models that had not seen its signature; None if nothing was
        held out.
        examples: the pairs of signature and group.
        accuracy_percent: as requested. Each signature counts once, because each unseen one needs one answer.

    Enough must be labelled for one wrong answer to show: 20 for 95 %. A signature with several groups has the
    most frequent one: differences between its launches do not make the signature unlike all others.
    """
    if answers is None:
        return Abstention(None, None, None)
    main = examples.main
    main = main[np.argsort(-answers.confidence[main], kind="stable")]
    confidence, right = answers.confidence[main], answers.labels[main] == examples.label[main]
    labelled = np.arange(1, len(main) + 1)
    accuracy = 100 * np.cumsum(right) / labelled
    # Answers of one confidence are given or withheld together.
    last_of_equals = np.append(np.diff(confidence) < 0, True)
    wrong = 1 - accuracy_percent / 100
    least = min(round(1 / wrong), _MOST_NEEDED) if wrong > 0 else _MOST_NEEDED
    enough = np.flatnonzero(last_of_equals & (accuracy >= accuracy_percent) & (labelled >= least))
    if not len(enough):
        return Abstention(None, None, 100.0)
    last = int(enough[-1])
    return Abstention(
        0.0 if last == len(main) - 1 else float(confidence[last]),
        float(accuracy[last]),
        100.0 * (1 - (last + 1) / len(main)),
    )
