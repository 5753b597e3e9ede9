"""How well models label launches that they were not trained on.

Two ways of holding out, and neither is what a workload needs: the last launches of the window repeat most of
what came before, and a signature that was held out may have been the only one of its kernel. What follows
the window is a mixture: seen signatures, as in the first way, and new signatures of known kernels, as in the
second. :func:`expected_accuracy` weighs both by the light time that each kind has in the workload.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from assay_sampling.labelling.classifiers import Answers, Examples, ModelName, train
from assay_sampling.launches.row_hash import hash_rows

_TRAINED_SHARE = 0.8
_FOLDS = 5

# A trained model: answers for the pairs of other examples.
Trained = Callable[[Examples], Answers]
Trainer = Callable[[Examples], Trained]


@dataclass(frozen=True)
class Accuracy:
    """Share of held-out launches that got their true group, in percent; ``balanced``: mean over groups.

    Both are None where nothing could be held out.
    """

    plain: float | None
    balanced: float | None

    @classmethod
    def of(cls, truth: np.ndarray, predicted: np.ndarray, weight: np.ndarray) -> Accuracy:
        right = np.where(truth == predicted, weight, 0.0)
        of_group = np.bincount(truth, weights=weight)
        present = of_group > 0
        recall = np.bincount(truth, weights=right)[present] / of_group[present]
        return cls(100.0 * float(right.sum() / weight.sum()), 100.0 * float(recall.mean()))


NOTHING_HELD_OUT = Accuracy(None, None)


class Labelled(Protocol):
    """Answers of a model, or a vote: one group for each example."""

    @property
    def labels(self) -> np.ndarray: ...


def accuracy(answers: Labelled | None, examples: Examples, weight: np.ndarray | None = None) -> Accuracy:
    """How well answers fit their examples, by launches or by another ``weight``, shape (p,).

    ``answers`` is None if nothing was held out.
    """
    counted = examples.weight if weight is None else weight
    if answers is None or not counted.any():
        return NOTHING_HELD_OUT
    return Accuracy.of(examples.label, answers.labels, counted)


def feature_trainer(name: ModelName, groups: int, seed: int) -> Trainer:
    """Trains a model on encoded signatures."""

    def trained(examples: Examples) -> Trained:
        model = train(name, examples, seed=seed)
        return lambda other: model.answers(other.features[other.signature], groups)

    return trained


def chronological_answers(trainer: Trainer, earlier: Examples, later: Examples) -> Answers | None:
    """Answers for the later examples by a model trained on the earlier; None if either is empty."""
    if not len(earlier.label) or not len(later.label):
        return None
    return trainer(earlier)(later)


def earlier_launches(process: np.ndarray) -> np.ndarray:
    """Which launches of a window are the first 80 % of their process, shape (w,), bool.

    ``process``, shape (w,), is ascending, launches within a process are in order.
    """
    _, starts, inverse, counts = np.unique(
        process, return_index=True, return_inverse=True, return_counts=True
    )
    trained = np.floor(_TRAINED_SHARE * counts)
    return np.asarray(np.arange(len(process)) - starts[inverse] < trained[inverse])


def folds_of(signature_hashes: np.ndarray, seed: int) -> np.ndarray:
    """The fold of each distinct signature, shape (s,): five folds, or as many as there are signatures.

    Signatures are dealt in the order of their seeded hashes.
    """
    fold = np.empty(len(signature_hashes), np.int64)
    order = np.argsort(hash_rows([signature_hashes], seed=seed))
    fold[order] = np.arange(len(fold)) % max(1, min(_FOLDS, len(fold)))
    return fold


def grouped_answers(trainer: Trainer, examples: Examples, folds: np.ndarray) -> Answers | None:
    """Answers for every example by a model that did not see its signature; None for one signature.

    ``folds``, shape (s,), are those of the window's signatures.
    """
    if len(folds) < 2:
        return None
    all_answers: Answers | None = None
    for held_out in range(int(folds.max()) + 1):
        test = folds[examples.signature] == held_out
        answers = trainer(examples.where(~test))(examples.where(test))
        if all_answers is None:
            shape = (len(examples.label), answers.probabilities.shape[1])
            all_answers = Answers(np.empty(shape[0], np.int32), np.empty(shape))
        all_answers.labels[test], all_answers.probabilities[test] = answers.labels, answers.probabilities
    return all_answers


@dataclass(frozen=True)
class Behind:
    """The launches that follow the window, and how far held-out examples are like them.

    ``unseen_share`` is the share of new signatures in the light time of the launches to be labelled;
    ``light_ns`` the mean time of each of the window's s signatures, or 1; ``seen_early`` whether it is
    among the earlier launches; ``folds`` and ``kernel`` are the signatures' too, all of shape (s,).
    """

    unseen_share: float
    light_ns: np.ndarray
    seen_early: np.ndarray
    folds: np.ndarray
    kernel: np.ndarray

    def weights(self, later: Examples, unseen: Examples) -> tuple[np.ndarray, np.ndarray]:
        """How much each of the later and of the held-out examples counts, shapes (p,) and (q,)."""
        of_later = later.weight * (self.light_ns * self.seen_early)[later.signature]
        launches = np.bincount(unseen.signature, unseen.weight, len(self.folds))
        once = 1 / np.maximum(launches, 1)
        elsewhere = self._kernels_elsewhere()
        # Without any kernel in two folds, signatures of kernels that were not seen are all there is.
        of_signature = once * elsewhere if elsewhere.any() else once
        return of_later, unseen.weight * of_signature[unseen.signature]

    def _kernels_elsewhere(self) -> np.ndarray:
        numbers = np.unique(self.kernel, return_inverse=True)[1]
        pairs = np.unique(np.column_stack([numbers, self.folds]), axis=0)
        return np.asarray(np.bincount(pairs[:, 0])[numbers] > 1)


def expected_accuracy(
    later: tuple[Labelled | None, Examples],
    unseen: tuple[Labelled | None, Examples],
    behind: Behind,
) -> float | None:
    """The accuracy to expect after the window, in percent.

    Args:
        later: answers for the last launches, and these. Those count whose signature came before, by their
            light time.
        unseen: answers for held-out signatures, and these. Those count of which another fold holds the
            kernel, each once: only new signatures of known kernels are labelled, and each is new.
        behind: what the launches to be labelled consist of.

    None if one of both counts and was not measured.
    """
    weights = behind.weights(later[1], unseen[1])
    measured = [accuracy(*pair, weight).plain for pair, weight in zip((later, unseen), weights, strict=True)]
    shares = (1 - behind.unseen_share, behind.unseen_share)
    parts = list(zip(measured, shares, strict=True))
    if any(percent is None and share > 0 for percent, share in parts):
        return None
    return sum(percent * share for percent, share in parts if percent is not None)
