"""The answers of each model for the launches after the window, and its accuracy on launches held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from assay_sampling.labelling.classifiers import (
    MODEL_NAMES,
    Answers,
    Examples,
    Model,
    ModelName,
    answer_signatures,
    train,
)
from assay_sampling.labelling.encoding import Encoder
from assay_sampling.labelling.held_out import (
    Accuracy,
    Behind,
    Trained,
    Trainer,
    accuracy,
    chronological_answers,
    earlier_launches,
    expected_accuracy,
    feature_trainer,
    folds_of,
    grouped_answers,
)
from assay_sampling.labelling.light_facts import LightFacts
from assay_sampling.labelling.vote import Vote, vote, vote_weights
from assay_sampling.labelling.within_kernel import (
    KERNEL_MODEL_NAMES,
    Answerer,
    Donors,
    KernelModelName,
    WindowCounters,
    nearest_light_time,
    scaled_counters,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import Signatures

COMBINED: Literal["combined"] = "combined"
LabellerName = Literal["sgd", "gaussian_nb", "mlp", "combined", "nearest_light_time", "scaled_counters"]


@dataclass(frozen=True)
class HeldOut:
    """Accuracies of a model on launches of the window that it was not trained on.

    ``expected`` is the one to expect after the window, in percent
    (:func:`assay_sampling.labelling.held_out.expected_accuracy`); None if too little could be held out.
    """

    chronological: Accuracy
    grouped: Accuracy
    expected: float | None


@dataclass(frozen=True)
class Judged:
    """The answers of each model and of their vote for every signature, shape (m,), and how good each is."""

    labels: Mapping[LabellerName, np.ndarray]
    confidence: Mapping[LabellerName, np.ndarray]
    held_out: Mapping[LabellerName, HeldOut]
    weights: Mapping[ModelName, float]
    unseen: Mapping[LabellerName, Vote | None]

    @classmethod
    def of(
        cls, window: Window, signatures: Signatures, facts: LightFacts, light: Launches, unseen_share: float
    ) -> Judged:
        """``unseen_share``: of new signatures in the light time of the launches that a model must label."""
        later, unseen = window.answers_later(), window.answers_unseen()
        chronological = [window.accuracy_later(later[name]).plain for name in MODEL_NAMES]
        grouped = [window.accuracy_unseen(unseen[name]).plain for name in MODEL_NAMES]
        # The vote is judged with weights from the other way of holding out: its own would flatter it.
        judged_later = _with_vote(later, vote_weights(grouped, window.groups))
        judged_unseen = _with_vote(unseen, vote_weights(chronological, window.groups))
        weights = vote_weights(
            [_mean(pair) for pair in zip(chronological, grouped, strict=True)], window.groups
        )
        labels, confidence = _labels_of_all(window, weights, signatures, facts, light)
        return cls(
            labels=labels,
            confidence=confidence,
            held_out={
                name: window.held_out(later_vote, judged_unseen[name], unseen_share)
                for name, later_vote in judged_later.items()
            },
            weights=dict(zip(MODEL_NAMES, weights.tolist(), strict=True)),
            unseen=_with_vote(unseen, weights),
        )


def _labels_of_all(
    window: Window, weights: np.ndarray, signatures: Signatures, facts: LightFacts, light: Launches
) -> tuple[dict[LabellerName, np.ndarray], dict[LabellerName, np.ndarray]]:
    """Labels and confidence of every model for every signature, shape (m,) each."""
    models = [Model(window.encoder, train(name, window.examples, seed=window.seed)) for name in MODEL_NAMES]
    by_kernel = {name: window.answerer(name, window.examples) for name in window.kernel_models}
    names: tuple[LabellerName, ...] = (*MODEL_NAMES, COMBINED, *by_kernel)
    labels = {name: np.empty(len(signatures), np.int32) for name in names}
    confidence = {name: np.empty(len(signatures)) for name in names}
    for part, of_models in answer_signatures(models, signatures, light.names, window.groups):
        answers: dict[LabellerName, Answers | None] = {
            **dict(zip(MODEL_NAMES, of_models, strict=True)),
            **{name: answer(facts.take(part), window.groups) for name, answer in by_kernel.items()},
        }
        for name, each in _with_vote(answers, weights).items():
            assert each is not None
            labels[name][part], confidence[name][part] = each.labels, each.confidence
    return labels, confidence


def _with_vote(
    answers: Mapping[LabellerName, Answers | None], weights: np.ndarray
) -> dict[LabellerName, Vote | None]:
    """Each model's answers with their confidence, and the vote of the paper's models."""
    voters = [each for name in MODEL_NAMES if (each := answers[name]) is not None]
    votes: dict[LabellerName, Vote | None] = {}
    for name, each in answers.items():
        votes[name] = None if each is None else vote([each], np.ones(1))
        if name == MODEL_NAMES[-1]:
            votes[COMBINED] = vote(voters, weights) if len(voters) == len(MODEL_NAMES) else None
    return votes


def _mean(accuracies: tuple[float | None, float | None]) -> float | None:
    values = [each for each in accuracies if each is not None]
    return sum(values) / len(values) if values else None


@dataclass(frozen=True)
class Window:
    """The window's launches as examples: all, the earlier and the later ones; ``groups`` of them."""

    encoder: Encoder
    examples: Examples
    earlier: Examples
    later: Examples
    folds: np.ndarray
    facts: LightFacts
    counters: WindowCounters | None
    groups: int
    seed: int

    @classmethod
    def of(
        cls,
        light: Launches,
        signatures: Signatures,
        facts: LightFacts,
        *,
        rows: np.ndarray,
        labels: np.ndarray,
        counters: WindowCounters | None,
        seed: int,
    ) -> Window:
        """The launches of a light run whose groups are known, ``rows`` and ``labels`` of shape (w,)."""
        used, of_launch, weights = np.unique(
            signatures.inverse[rows], return_inverse=True, return_counts=True
        )
        columns = signatures.take(used)
        encoder = Encoder.fit(columns, light.names, weights=weights.astype(np.float64), seed=seed)
        features, numeric = encoder.transform(columns), encoder.numeric
        early = earlier_launches(light.column("process")[rows])
        everything, earlier, later = (
            Examples.of(
                features,
                numeric,
                of_launch[chosen],
                labels[chosen],
                None if counters is None else counters.values[chosen],
            )
            for chosen in (slice(None), early, ~early)
        )
        return cls(
            encoder=encoder,
            examples=everything,
            earlier=earlier,
            later=later,
            folds=folds_of(signatures.hashes()[used], seed),
            facts=facts.take(used),
            counters=counters,
            groups=int(labels.max()) + 1,
            seed=seed,
        )

    @property
    def kernel_models(self) -> tuple[KernelModelName, ...]:
        """The models within kernels that this window has the facts for."""
        inputs = {"nearest_light_time": self.facts.light_ns, "scaled_counters": self.counters}
        return tuple(name for name in KERNEL_MODEL_NAMES if inputs[name] is not None)

    def answerer(self, name: KernelModelName, examples: Examples) -> Answerer:
        """A model within kernels, trained on some of the window's examples."""
        donors = Donors.of(self.facts, examples)
        if name == "nearest_light_time":
            return nearest_light_time(donors)
        assert self.counters is not None
        return scaled_counters(donors, examples, self.counters)

    def trainers(self) -> dict[LabellerName, Trainer]:
        """The trainer of each model, by name."""
        by_features: dict[LabellerName, Trainer] = {
            name: feature_trainer(name, self.groups, self.seed) for name in MODEL_NAMES
        }
        return {**by_features, **{name: partial(self._trained, name) for name in self.kernel_models}}

    def _trained(self, name: KernelModelName, examples: Examples) -> Trained:
        answer = self.answerer(name, examples)
        return lambda other: answer(self.facts.take(other.signature), self.groups)

    def answers_later(self) -> dict[LabellerName, Answers | None]:
        """Each model's answers for the later launches, trained on the earlier ones."""
        return {
            name: chronological_answers(trainer, self.earlier, self.later)
            for name, trainer in self.trainers().items()
        }

    def answers_unseen(self) -> dict[LabellerName, Answers | None]:
        """Each model's answers for signatures that it had not seen."""
        return {
            name: grouped_answers(trainer, self.examples, self.folds)
            for name, trainer in self.trainers().items()
        }

    def accuracy_later(self, answers: Answers | Vote | None) -> Accuracy:
        return accuracy(answers, self.later)

    def accuracy_unseen(self, answers: Answers | Vote | None) -> Accuracy:
        return accuracy(answers, self.examples)

    def held_out(self, later: Vote | None, unseen: Vote | None, unseen_share: float) -> HeldOut:
        """The accuracies of a model by its answers for both kinds of examples."""
        signatures = len(self.folds)
        behind = Behind(
            unseen_share=unseen_share,
            light_ns=np.ones(signatures) if self.facts.light_ns is None else self.facts.light_ns,
            seen_early=np.isin(np.arange(signatures), self.earlier.signature),
            folds=self.folds,
            kernel=self.facts.kernel,
        )
        expected = expected_accuracy((later, self.later), (unseen, self.examples), behind)
        return HeldOut(self.accuracy_later(later), self.accuracy_unseen(unseen), expected)
