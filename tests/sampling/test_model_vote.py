"""The vote of several models: weights, winners, confidence, and the threshold below which it abstains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from assay_sampling.errors import ParameterError
from assay_sampling.labelling import judging
from assay_sampling.labelling.classifiers import MODEL_NAMES, Answers, Examples, ModelName, train
from assay_sampling.labelling.encoding import Encoder
from assay_sampling.labelling.light_run import label_rest
from assay_sampling.labelling.vote import Abstention, Vote, calibrate, vote, vote_weights
from assay_sampling.launches.signatures import distinct_signatures
from tests.support.sampling.made_launches import made_launches


def answers(labels: list[int], confidence: float = 0.8, groups: int = 3) -> Answers:
    probabilities = np.full((len(labels), groups), (1 - confidence) / (groups - 1))
    probabilities[np.arange(len(labels)), labels] = confidence
    return Answers(np.array(labels, np.int32), probabilities)


def examples(signature: list[int], label: list[int], weight: list[float]) -> Examples:
    features = np.zeros((max(signature) + 1, 1), np.float32)
    return Examples(features, np.ones(1, bool), np.array(signature), np.array(label), np.array(weight))


def test_weights_are_log_odds_against_guessing() -> None:
    found = vote_weights([90.0, 60.0, 50.0], 3)
    odds = np.array([math.log(9) + math.log(2), math.log(1.5) + math.log(2), math.log(2)])
    assert found == pytest.approx(odds / odds.sum())
    assert vote_weights([20.0, 90.0], 2).tolist() == [0.0, 1.0]  # worse than guessing
    assert vote_weights([None, None], 4).tolist() == [0.5, 0.5]
    assert vote_weights([0.0, 10.0], 2).tolist() == [0.5, 0.5]
    assert np.isfinite(vote_weights([100.0, 100.0, 99.9], 1)).all()


def test_two_that_agree_outvote_one_unless_it_weighs_more() -> None:
    given = [answers([0, 1]), answers([2, 1]), answers([2, 0])]
    assert vote(given, np.array([0.4, 0.3, 0.3])).labels.tolist() == [2, 1]
    assert vote(given, np.array([0.6, 0.2, 0.2])).labels.tolist() == [0, 1]
    # Each for itself: the one with the largest weight; of equals the first.
    apart = [answers([0]), answers([1]), answers([2])]
    assert vote(apart, np.array([0.3, 0.3, 0.4])).labels.tolist() == [2]
    assert vote(apart, np.array([1 / 3, 1 / 3, 1 / 3])).labels.tolist() == [0]


def test_the_confidence_is_the_weighted_mean_of_the_probabilities() -> None:
    found = vote([answers([0], 0.8), answers([0], 0.6), answers([1], 0.9)], np.array([0.5, 0.3, 0.2]))
    assert found.labels.tolist() == [0]
    assert found.confidence == pytest.approx([0.5 * 0.8 + 0.3 * 0.6 + 0.2 * 0.05])


def blocks(right: list[bool], confidence: list[float], size: int = 20) -> tuple[Vote, Examples]:
    """Signatures of group 0 in blocks of one confidence, each answered rightly or not."""
    labels = np.repeat(np.where(right, 0, 1), size)
    count = len(labels)
    return Vote(labels, np.repeat(confidence, size)), examples([*range(count)], [0] * count, [1.0] * count)


def test_the_threshold_is_the_lowest_that_is_right_often_enough() -> None:
    # Right from the top: 20 of 20, 40 of 40, 40 of 60, 60 of 80.
    found, given = blocks([True, True, False, True], [0.9, 0.8, 0.7, 0.6])
    assert calibrate(found, given, 95) == Abstention(0.8, 100.0, 50.0)
    assert calibrate(found, given, 75) == Abstention(0.0, 75.0, 0.0)
    assert calibrate(found, given, 70) == Abstention(0.0, 75.0, 0.0)
    assert calibrate(Vote(1 - found.labels, found.confidence), given, 95) == Abstention(None, None, 100.0)
    assert calibrate(None, given, 95) == Abstention(None, None, None)


def test_a_few_lucky_answers_prove_nothing() -> None:
    found, given = blocks([True, False], [0.9, 0.8], size=10)
    assert calibrate(found, given, 95).threshold is None
    assert calibrate(found, given, 90).threshold == 0.9
    assert calibrate(found, given, 100).threshold is None
    found, given = blocks([True, False], [0.9, 0.8], size=100)
    assert calibrate(found, given, 100).threshold == 0.9


def test_answers_of_one_confidence_stand_or_fall_together() -> None:
    found, given = blocks([True, True, False], [0.9, 0.5, 0.5])
    assert calibrate(found, given, 95).threshold == 0.9


def test_the_group_of_a_signature_with_several_is_the_most_frequent() -> None:
    given = examples([0, 0, 1], [0, 1, 1], [1.0, 5.0, 4.0])
    found = Vote(np.array([1, 1, 1]), np.array([0.7, 0.7, 0.9]))
    assert calibrate(found, given, 50) == Abstention(0.0, 100.0, 0.0)


def test_what_abstains() -> None:
    confidence = np.array([0.2, 0.5, 0.9])
    assert Abstention(0.5, 99.0, 10.0).abstains(confidence).tolist() == [True, False, False]
    assert Abstention(0.0, 99.0, 0.0).abstains(confidence).tolist() == [False] * 3
    assert Abstention(None, None, None).abstains(confidence).tolist() == [True] * 3


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_probabilities_come_with_the_labels_that_predict_gives(name: ModelName, groups: int) -> None:
    rng = np.random.default_rng(groups)
    launches = made_launches(rng.choice(list("abcdef"), 300).tolist(), grid_x=2 ** rng.integers(0, 14, 300))
    signatures = distinct_signatures(launches)
    encoder = Encoder.fit(signatures.columns, launches.names)
    features = encoder.transform(signatures.columns)
    labels = 3 + rng.integers(0, groups, len(launches))
    model = train(name, Examples.of(features, encoder.numeric, signatures.inverse, labels), seed=0)
    found = model.answers(features, 3 + groups)
    assert found.labels.tolist() == model.predict(features).tolist()
    assert found.probabilities.sum(axis=1) == pytest.approx(1)
    assert (found.probabilities[:, :3] == 0).all()
    if name != "sgd":  # one against the rest: far from all groups the logistic functions of all are 0
        assert (found.probabilities.argmax(axis=1) == found.labels).all()


def windowed(seed: int = 0) -> tuple[list[str], np.ndarray, np.ndarray]:
    """200 launches of a window, where group follows from kernel and, for c, from the grid; then 60 more."""
    rng = np.random.default_rng(seed)
    kernels = rng.choice(list("abc"), 260)
    grids = 2 ** rng.integers(0, 10, 260)
    labels = np.select([kernels == "a", kernels == "b", grids < 32], [0, 1, 2], 3)
    return kernels.tolist(), grids, labels


def test_the_vote_labels_what_the_models_label_and_its_weights_add_up() -> None:
    kernels, grids, labels = windowed()
    found = label_rest(made_launches(kernels, grid_x=grids), np.arange(200), labels[:200], model="combined")
    assert found.chosen == "combined"
    assert set(found.predicted) == {*MODEL_NAMES, "combined"}
    assert sum(found.vote_weights.values()) == pytest.approx(1)
    assert (found.labels("combined") == labels).mean() > 0.95
    assert found.held_out["combined"].grouped.plain is not None
    with pytest.raises(ParameterError, match="no model 'svm'; use one of best, sgd"):
        label_rest(made_launches(["a"]), np.arange(1), np.zeros(1, int), model="svm")  # type: ignore[arg-type]


def test_launches_unlike_any_seen_are_set_apart_on_request() -> None:
    # Groups of a are random over its grids: nothing can be said of a new grid. Those of b are always 1.
    rng = np.random.default_rng(5)
    grids = [*range(1, 41), *[7] * 40, 1000, 1001, 1000, 3]
    kernels = ["a"] * 40 + ["b"] * 40 + ["a", "a", "a", "a"]
    labels = np.concatenate([2 * rng.integers(0, 2, 40), np.ones(40, int)])
    launches = made_launches(kernels, grid_x=grids)
    only_counted = label_rest(launches, np.arange(80), labels)
    assert only_counted.abstained is not None
    assert not only_counted.abstained.apart
    assert only_counted.abstained.launches == 3
    assert only_counted.groups == 3
    assert len(only_counted.classified_rows) == 4
    apart = label_rest(launches, np.arange(80), labels, abstain=True)
    assert apart.groups == 5
    assert apart.own_group_rows.tolist() == [80, 81]
    assert apart.labels(apart.chosen)[80:83].tolist() == [3, 4, 3]
    # The grid 3 was seen: it keeps the group that the window gives it.
    assert apart.classified_rows.tolist() == [83]
    assert apart.labels(apart.chosen)[83] == only_counted.labels(only_counted.chosen)[83]
    sure = label_rest(launches, np.arange(80), labels, abstain=True, label_accuracy_percent=0)
    assert sure.groups == 3


def test_unknown_kernels_come_before_those_abstained_from() -> None:
    rng = np.random.default_rng(5)
    launches = made_launches(["a"] * 41 + ["z", "a", "z"], grid_x=[*range(1, 41), 500, 1, 501, 1])
    found = label_rest(launches, np.arange(40), rng.integers(0, 2, 40), abstain=True)
    assert found.unknown_first_rows.tolist() == [41]
    assert found.labels(found.chosen)[40:].tolist() == [3, 2, 4, 2]
    assert found.own_group_rows.tolist() == [41, 40, 42]
    assert found.agreement_percent is None


def test_the_vote_is_judged_with_weights_from_the_other_way_of_holding_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[float | None]] = []

    def weights(accuracies: Sequence[float | None], groups: int) -> np.ndarray:
        asked.append(list(accuracies))
        return vote_weights(accuracies, groups)

    monkeypatch.setattr(judging, "vote_weights", weights)
    rng = np.random.default_rng(2)
    kernels = [f"k{number}" for number in rng.integers(0, 6, 260)]
    light = made_launches(kernels, grid_x=rng.integers(1, 40, 260))
    held_out = label_rest(light, np.arange(200), rng.integers(0, 3, 200)).held_out
    later = [held_out[name].chronological.plain for name in MODEL_NAMES]
    unseen = [held_out[name].grouped.plain for name in MODEL_NAMES]
    assert later != unseen
    # Launches that come later are judged first: with what unseen signatures say of the models.
    assert asked[:2] == [unseen, later]
