"""Models that put a light launch into a group by its encoded signature: SGD, GaussianNB, MLP.

Models see each distinct (signature, group) pair of the window once, weighted by its launches, and each
distinct signature of the rest once; answers are broadcast to the launches.

Source: Principal Kernel Analysis, "Two-level profiling" (stochastic gradient descent, Gaussian naive
Bayes, multi-layer perceptron; parameters, encoding and their combination are not in the paper).
Memory: 4 bytes a launch and model for the answers, besides the memory for finding signatures; features are
made for at most 8,192 signatures at a time.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from assay_sampling.labelling.encoding import Encoder, SparseMatrix
from assay_sampling.labelling.extra import sklearn, thread_limits
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import Signatures, distinct_signatures
from assay_sampling.launches.table import Names

ModelName = Literal["sgd", "gaussian_nb", "mlp"]
MODEL_NAMES: tuple[ModelName, ...] = ("sgd", "gaussian_nb", "mlp")

_CHUNK_SIGNATURES = 1 << 13
# Rows x epochs of the perceptron: affordable for a window of 20,000 distinct signatures.
_PERCEPTRON_ROW_PASSES = 400_000
_EARLY_STOPPING_ROWS = 1_000
_MOST_COPIES = 32


@dataclass(frozen=True)
class Examples:
    """The training data: the distinct (signature, group) pairs of the window, shape (p,) each.

    ``signature`` numbers the rows of ``features``, shape (s, width), one for each distinct signature of
    the window; ``weight`` counts launches. ``numeric``, shape (width,), marks columns to standardise.
    ``counters``, shape (p, f), holds the mean counters of each pair's launches, if they are known.
    """

    features: np.ndarray
    numeric: np.ndarray
    signature: np.ndarray
    label: np.ndarray
    weight: np.ndarray
    counters: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        features: np.ndarray,
        numeric: np.ndarray,
        signatures: np.ndarray,
        labels: np.ndarray,
        counters: np.ndarray | None = None,
    ) -> Examples:
        """Pairs of ``signatures`` and ``labels``, both of shape (launches,); ``counters`` of the launches
        have shape (launches, f)."""
        groups = int(labels.max(initial=0)) + 1
        pairs, inverse, count = np.unique(
            signatures.astype(np.int64) * groups + labels, return_inverse=True, return_counts=True
        )
        weight = count.astype(np.float64)
        means = None if counters is None else _means(counters, inverse, weight)
        return cls(features, numeric, pairs // groups, pairs % groups, weight, means)

    def where(self, chosen: np.ndarray) -> Examples:
        return Examples(
            self.features,
            self.numeric,
            self.signature[chosen],
            self.label[chosen],
            self.weight[chosen],
            None if self.counters is None else self.counters[chosen],
        )

    @property
    def main(self) -> np.ndarray:
        """The pair with most launches of each signature, of equals that of the first group; ascending by
        signature."""
        order = np.lexsort((self.label, -self.weight, self.signature))
        pairs: np.ndarray = order[np.unique(self.signature[order], return_index=True)[1]]
        return pairs

    @property
    def ambiguous_percent(self) -> float:
        """Share of the launches whose signature has more than one group."""
        pairs = np.bincount(self.signature, minlength=len(self.features))
        return 100.0 * float(self.weight[pairs[self.signature] > 1].sum() / self.weight.sum())


def _means(counters: np.ndarray, pair: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Means of (launches, f) by pair, (p, f); a column at a time, as no copy of all should be made."""
    sums = [np.bincount(pair, column, len(weight)) for column in counters.T]
    means: np.ndarray = np.stack(sums, axis=1) / weight[:, None]
    return means


@dataclass(frozen=True)
class Answers:
    """Groups that a model gives to r launches, shape (r,), int32, and its probabilities of the g groups,
    shape (r, g), which are not calibrated."""

    labels: np.ndarray
    probabilities: np.ndarray

    def where(self, chosen: np.ndarray) -> Answers:
        return Answers(self.labels[chosen], self.probabilities[chosen])


@dataclass(frozen=True)
class FeatureClassifier:
    """A trained model on features. ``estimator`` is None where it was trained on one group only."""

    name: ModelName
    groups: np.ndarray
    used: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    estimator: Any

    def predict(self, features: np.ndarray | SparseMatrix) -> np.ndarray:
        """Groups of launches with these features, shape (r, width): shape (r,), int32."""
        if self.estimator is None:
            return np.full(features.shape[0], self.groups[0], np.int32)
        labels = self.estimator.predict(self._standard(features))
        return np.asarray(labels, np.int32)

    def answers(self, features: np.ndarray | SparseMatrix, groups: int) -> Answers:
        """Groups of launches, with probabilities of all ``groups``: 0 for those not trained on."""
        probabilities = np.zeros((features.shape[0], groups))
        if self.estimator is None:
            probabilities[:, self.groups[0]] = 1.0
            return Answers(np.full(len(probabilities), self.groups[0], np.int32), probabilities)
        labels, own_probabilities = _ANSWERS[self.name](self.estimator, self._standard(features))
        probabilities[:, self.groups] = own_probabilities
        return Answers(np.asarray(labels, np.int32), probabilities)

    def _standard(self, features: np.ndarray | SparseMatrix) -> np.ndarray | SparseMatrix:
        standard = features[:, self.used]
        if isinstance(standard, np.ndarray):
            return (standard - self.mean) / self.scale
        # Values that are not stored are 0 of an indicator, whose mean is 0.
        standard.data = (standard.data - self.mean[standard.indices]) / self.scale[standard.indices]
        return standard


def train(name: ModelName, examples: Examples, *, seed: int) -> FeatureClassifier:
    """Train one model on the examples; with one group only, it always answers that group.

    If all launches look alike, it always answers the group of most launches. Raises MissingExtraError if
    scikit-learn is not installed.
    """
    features = examples.features[examples.signature]
    groups = np.unique(examples.label)
    used, mean, scale = _standardisation(features, examples)
    if not len(used):
        groups = np.array([np.bincount(examples.label, weights=examples.weight).argmax()], groups.dtype)
    estimator = None
    if len(groups) > 1:
        standard = (features[:, used] - mean) / scale
        estimator = _TRAINERS[name](standard, examples.label, examples.weight, seed)
    return FeatureClassifier(name, groups, used, mean, scale, estimator)


def _standardisation(features: np.ndarray, examples: Examples) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns that vary, and their mean and scale: numbers get mean 0 and variance 1 over the launches.

    Indicators stay 0 and 1: scaled by their rarity, one launch of a rare kernel would outweigh all else.
    """
    used = np.flatnonzero(np.ptp(features, axis=0) > 0)
    share = examples.weight / examples.weight.sum()
    values = features[:, used].astype(np.float64)
    mean = share @ values
    scale = np.sqrt(share @ (values - mean) ** 2)
    numeric = examples.numeric[used]
    mean, scale = np.where(numeric, mean, 0.0), np.where(numeric, np.maximum(scale, 1e-6), 1.0)
    return used, mean.astype(np.float32), scale.astype(np.float32)


def _step_weights(weight: np.ndarray) -> np.ndarray:
    # A weight scales the step of a gradient method: one signature with a hundred thousand launches
    # would make it jump. The root keeps the order (the more frequent group of a signature wins).
    root = np.sqrt(weight)
    return np.asarray(root / root.mean())


def _train_sgd(features: np.ndarray, labels: np.ndarray, weight: np.ndarray, seed: int) -> Any:
    model = sklearn("linear_model").SGDClassifier(loss="log_loss", random_state=seed)
    return _fit_quietly(model, features, labels, sample_weight=_step_weights(weight))


def _train_gaussian_nb(features: np.ndarray, labels: np.ndarray, weight: np.ndarray, seed: int) -> Any:
    fitted = sklearn("naive_bayes").GaussianNB().fit(features, labels, sample_weight=weight)
    return GaussianScores.of(fitted)


@dataclass(frozen=True)
class GaussianScores:
    """The answers of a fitted GaussianNB by two matrix products, many times faster than its own predict.

    log P(group, x) = constant + x . linear - x^2 . quadratic, of shapes (g,), (w, g) and (w, g): the
    squares of (x - mean) / deviation, multiplied out.
    """

    groups: np.ndarray
    constant: np.ndarray
    linear: np.ndarray
    quadratic: np.ndarray

    @classmethod
    def of(cls, fitted: Any) -> GaussianScores:
        mean, variance = fitted.theta_, fitted.var_
        constant = np.log(fitted.class_prior_) - 0.5 * (
            np.log(2 * np.pi * variance) + mean**2 / variance
        ).sum(axis=1)
        return cls(fitted.classes_, constant, (mean / variance).T, (0.5 / variance).T)

    def predict(self, features: np.ndarray | SparseMatrix) -> np.ndarray:
        return np.asarray(self.groups[self.scores(features).argmax(axis=1)])

    def scores(self, features: np.ndarray | SparseMatrix) -> np.ndarray:
        """log P(group, x), shape (r, g)."""
        # The products cancel: float32 would lose the difference.
        x = features.astype(np.float64)
        log_joint: np.ndarray = self.constant + x @ self.linear - (x * x) @ self.quadratic
        return log_joint


def _train_mlp(features: np.ndarray, labels: np.ndarray, weight: np.ndarray, seed: int) -> Any:
    perceptron = sklearn("neural_network").MLPClassifier
    weighted = "sample_weight" in inspect.signature(perceptron.fit).parameters
    weight = _step_weights(weight)
    if not weighted:
        # scikit-learn before 1.7 takes no weights here: rows are repeated instead.
        copies = np.clip(np.rint(weight / weight.min()), 1, _MOST_COPIES).astype(np.int64)
        features, labels = np.repeat(features, copies, axis=0), np.repeat(labels, copies)
    rows = len(labels)
    smallest = int(np.unique(labels, return_counts=True)[1].min())
    model = perceptron(
        hidden_layer_sizes=(64,),
        random_state=seed,
        max_iter=int(np.clip(_PERCEPTRON_ROW_PASSES // rows, 20, 300)),
        # Early stopping holds back rows of every group, which a group of one row cannot give.
        early_stopping=rows >= _EARLY_STOPPING_ROWS and smallest >= 2,
    )
    return _fit_quietly(model, features, labels, **({"sample_weight": weight} if weighted else {}))


def _fit_quietly(model: Any, features: np.ndarray, labels: np.ndarray, **options: np.ndarray) -> Any:
    # A warning that the iterations ran out would not help: the held-out accuracy shows what it cost.
    convergence = sklearn("exceptions").ConvergenceWarning
    # One thread: the matrices are small, several threads wait for each other (ten times as long on two
    # busy cores), and another order of summing would give other answers on another machine.
    one_thread = thread_limits().threadpool_limits(limits=1)
    with one_thread, warnings.catch_warnings():
        warnings.simplefilter("ignore", convergence)
        return model.fit(features, labels, **options)


def _answers_of_sgd(model: Any, features: np.ndarray | SparseMatrix) -> tuple[np.ndarray, np.ndarray]:
    # One product gives both; predict and predict_proba would each make it.
    decision = model.decision_function(features)
    if decision.ndim == 1:
        one = _logistic(decision)
        return model.classes_[(decision > 0).astype(np.intp)], np.stack([1 - one, one], axis=1)
    each = _logistic(decision)
    whole = each.sum(axis=1, keepdims=True)
    even = np.full_like(each, 1 / each.shape[1])
    return model.classes_[decision.argmax(axis=1)], np.divide(each, whole, out=even, where=whole > 0)


def _answers_of_gaussian_nb(
    model: GaussianScores, features: np.ndarray | SparseMatrix
) -> tuple[np.ndarray, np.ndarray]:
    scores = model.scores(features)
    likelihood = np.exp(scores - scores.max(axis=1, keepdims=True))
    return model.groups[scores.argmax(axis=1)], likelihood / likelihood.sum(axis=1, keepdims=True)


def _answers_of_mlp(model: Any, features: np.ndarray | SparseMatrix) -> tuple[np.ndarray, np.ndarray]:
    probabilities = model.predict_proba(features)
    return model.classes_[probabilities.argmax(axis=1)], probabilities


def _logistic(values: np.ndarray) -> np.ndarray:
    probability: np.ndarray = 0.5 * (1 + np.tanh(0.5 * values))
    return probability


_ANSWERS = {"sgd": _answers_of_sgd, "gaussian_nb": _answers_of_gaussian_nb, "mlp": _answers_of_mlp}
_TRAINERS = {"sgd": _train_sgd, "gaussian_nb": _train_gaussian_nb, "mlp": _train_mlp}


@dataclass(frozen=True)
class Model:
    """A trained model with the encoder of its training: signatures in, groups out."""

    encoder: Encoder
    classifier: FeatureClassifier


def predict_signatures(
    models: Sequence[Model], signatures: Signatures, names: Names | None = None
) -> np.ndarray:
    """Groups of distinct signatures by each model: shape (models, m), int32.

    All models share one encoder, so each signature is encoded once.
    """
    labels = np.empty((len(models), len(signatures)), np.int32)
    for start in range(0, len(signatures), _CHUNK_SIGNATURES):
        part = slice(start, start + _CHUNK_SIGNATURES)
        features = models[0].encoder.transform_sparse(signatures.take(part), names)
        for index, model in enumerate(models):
            labels[index, part] = model.classifier.predict(features)
    return labels


def answer_signatures(
    models: Sequence[Model], signatures: Signatures, names: Names | None, groups: int
) -> Iterator[tuple[slice, list[Answers]]]:
    """Answers of each model for distinct signatures, a few thousand at a time, with their slice."""
    for start in range(0, len(signatures), _CHUNK_SIGNATURES):
        part = slice(start, min(start + _CHUNK_SIGNATURES, len(signatures)))
        features = models[0].encoder.transform_sparse(signatures.take(part), names)
        yield part, [model.classifier.answers(features, groups) for model in models]


def predict_launches(models: Sequence[Model], launches: Launches) -> np.ndarray:
    """Groups of all launches by each model: shape (models, n), int32; each signature is encoded once."""
    signatures = distinct_signatures(launches)
    return predict_signatures(models, signatures, launches.names)[:, signatures.inverse]
