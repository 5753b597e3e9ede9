"""Models that give launches their group: training, accuracies, broadcasting."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from assay_sampling.errors import MissingExtraError
from assay_sampling.installation import install_command
from assay_sampling.labelling.classifiers import (
    MODEL_NAMES,
    Examples,
    GaussianScores,
    Model,
    ModelName,
    predict_launches,
    predict_signatures,
    train,
)
from assay_sampling.labelling.encoding import Encoder
from assay_sampling.labelling.held_out import (
    NOTHING_HELD_OUT,
    Accuracy,
    accuracy,
    chronological_answers,
    earlier_launches,
    feature_trainer,
    folds_of,
    grouped_answers,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import distinct_signatures
from tests.support.sampling.made_launches import made_launches


def examples_of(launches: Launches, labels: list[int] | np.ndarray) -> tuple[Encoder, Examples]:
    signatures = distinct_signatures(launches)
    encoder = Encoder.fit(
        signatures.columns, launches.names, weights=np.bincount(signatures.inverse).astype(float)
    )
    features = encoder.transform(signatures.columns)
    return encoder, Examples.of(features, encoder.numeric, signatures.inverse, np.asarray(labels))


def window() -> tuple[Launches, np.ndarray]:
    """Three kernels: a is in group 0, b in 1; c is in 2 below 64 blocks and in 0 from there on."""
    generator = np.random.default_rng(3)
    kernels = generator.choice(list("abc"), 400)
    grids = 2 ** generator.integers(0, 12, 400)
    labels = np.select([kernels == "a", kernels == "b", grids < 64], [0, 1, 2], 0)
    return made_launches(kernels.tolist(), grid_x=grids), labels


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_models_learn_groups_that_follow_from_kernel_and_grid(name: ModelName) -> None:
    launches, labels = window()
    encoder, examples = examples_of(launches, labels)
    assert examples.weight.sum() == 400
    assert examples.ambiguous_percent == 0.0
    model = Model(encoder, train(name, examples, seed=0))
    assert predict_launches([model], launches)[0].tolist() == labels.tolist()


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_more_frequent_group_of_a_signature_wins(name: ModelName) -> None:
    launches = made_launches(["a"] * 10 + ["b"] * 10)
    labels = [0] * 9 + [1] + [1] * 10
    encoder, examples = examples_of(launches, labels)
    assert sorted(examples.weight.tolist()) == [1, 9, 10]
    assert examples.ambiguous_percent == 50.0
    model = Model(encoder, train(name, examples, seed=0))
    assert predict_launches([model], launches)[0].tolist() == [0] * 10 + [1] * 10


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_window_of_one_group_answers_that_group(name: ModelName) -> None:
    launches = made_launches(["a", "b"])
    encoder, examples = examples_of(launches, [4, 4])
    model = Model(encoder, train(name, examples, seed=0))
    assert predict_launches([model], made_launches(["z", "a"]))[0].tolist() == [4, 4]


def test_answers_are_the_same_each_time_and_do_not_hang_on_the_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launches, labels = window()
    encoder, examples = examples_of(launches, labels)
    rest = made_launches(["a", "c", "c", "z"] * 50, grid_x=np.arange(1, 201))
    models = [Model(encoder, train(name, examples, seed=5)) for name in MODEL_NAMES]
    found = predict_launches(models, rest)
    assert found.shape == (3, 200)
    monkeypatch.setattr("assay_sampling.labelling.classifiers._CHUNK_SIGNATURES", 7)
    again = [Model(encoder, train(name, examples, seed=5)) for name in MODEL_NAMES]
    assert np.array_equal(predict_launches(again, rest), found)


def test_broadcasting_gives_what_classifying_every_launch_gives() -> None:
    launches, labels = window()
    encoder, examples = examples_of(launches, labels)
    models = [Model(encoder, train(name, examples, seed=0)) for name in MODEL_NAMES]
    every = {name: launches.column(name) for name in distinct_signatures(launches).columns}
    features = encoder.transform(every)
    expected = np.stack([model.classifier.predict(features) for model in models])
    assert np.array_equal(predict_launches(models, launches), expected)
    assert predict_signatures(models, distinct_signatures(launches)).dtype == np.int32


def test_gaussian_scores_answer_as_the_model_they_come_from() -> None:
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415 - optional extra

    generator = np.random.default_rng(1)
    means = generator.normal(0, 3, (6, 40))
    labels = generator.integers(0, 6, 500)
    features = np.where(generator.random((500, 40)) < 0.5, means[labels], 0).astype(np.float32)
    features[:, :10] += generator.normal(0, 1, (500, 10))
    fitted = GaussianNB().fit(features, labels, sample_weight=generator.integers(1, 9, 500))
    unseen = generator.normal(0, 4, (2_000, 40)).astype(np.float32)
    for tried in (features, unseen):
        assert np.array_equal(GaussianScores.of(fitted).predict(tried), fitted.predict(tried))


def test_accuracy_is_weighted_and_balanced_over_the_groups_that_occur() -> None:
    found = Accuracy.of(np.array([0, 0, 2]), np.array([0, 1, 2]), np.array([6.0, 2.0, 2.0]))
    assert found.plain == pytest.approx(80.0)
    assert found.balanced == pytest.approx((75.0 + 100.0) / 2)


def test_the_first_launches_of_every_process_are_the_earlier_ones() -> None:
    process = np.array([0] * 10 + [1] * 4 + [5])
    earlier = earlier_launches(process)
    assert earlier.tolist() == [True] * 8 + [False] * 2 + [True] * 3 + [False] + [False]


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_chronological_accuracy_trains_on_the_earlier_launches_only(name: ModelName) -> None:
    launches = made_launches(["a", "b"] * 40 + ["a", "b"] * 10)
    labels = np.array([0, 1] * 40 + [0, 0] * 10)
    signatures = distinct_signatures(launches)
    encoder, examples = examples_of(launches, labels)
    early = earlier_launches(launches.column("process"))
    parts = [
        Examples.of(examples.features, encoder.numeric, signatures.inverse[chosen], labels[chosen])
        for chosen in (early, ~early)
    ]
    trainer = feature_trainer(name, 2, seed=0)
    assert accuracy(chronological_answers(trainer, *parts), parts[1]) == Accuracy(50.0, 50.0)
    nothing = parts[0].where(np.zeros(len(parts[0].label), bool))
    assert chronological_answers(trainer, parts[0], nothing) is None
    assert chronological_answers(trainer, nothing, parts[1]) is None
    assert accuracy(None, parts[1]) == NOTHING_HELD_OUT


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_grouped_accuracy_has_no_signature_on_both_sides(name: ModelName) -> None:
    # Labels that hang on the signature by chance alone can be learned by heart, not foretold.
    generator = np.random.default_rng(0)
    grids = np.tile(np.arange(1, 201), 3)
    by_chance = generator.integers(0, 2, 201)[grids]
    launches = made_launches(["k"] * 600, grid_x=grids)
    encoder, examples = examples_of(launches, by_chance)
    model = Model(encoder, train(name, examples, seed=0))
    learned = (predict_launches([model], launches)[0] == by_chance).mean()
    hashes = distinct_signatures(launches).hashes()
    trainer, folds = feature_trainer(name, 2, seed=0), folds_of(hashes, seed=0)
    foretold = accuracy(grouped_answers(trainer, examples, folds), examples)
    assert learned > 0.95
    assert foretold.plain is not None
    assert 30 < foretold.plain < 70
    assert accuracy(grouped_answers(trainer, examples, folds), examples) == foretold


def test_one_signature_cannot_be_held_out() -> None:
    launches = made_launches(["k"] * 5)
    _, examples = examples_of(launches, [0, 1, 0, 1, 0])
    hashes = distinct_signatures(launches).hashes()
    assert grouped_answers(feature_trainer("sgd", 2, seed=0), examples, folds_of(hashes, seed=0)) is None


def test_a_scikit_learn_without_weights_for_the_perceptron_gets_repeated_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sklearn.neural_network import MLPClassifier  # noqa: PLC0415 - optional extra

    seen: list[int] = []
    weighted = MLPClassifier.fit

    def fit(self: MLPClassifier, X: np.ndarray, y: np.ndarray) -> MLPClassifier:
        seen.append(len(y))
        return weighted(self, X, y)

    monkeypatch.setattr(MLPClassifier, "fit", fit)
    launches = made_launches(["a"] * 100 + ["b"] * 4 + ["c"] * 1)
    labels = [0] * 96 + [1] * 4 + [1] * 4 + [2]
    encoder, examples = examples_of(launches, labels)
    model = Model(encoder, train("mlp", examples, seed=0))
    # Roots of 96, 4, 4 and 1 launches, rounded.
    assert seen == [10 + 2 + 2 + 1]
    found = predict_launches([model], launches)[0]
    assert (found[:100] == 0).all()


def test_a_large_window_with_a_group_of_one_launch_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_sampling.labelling.classifiers._EARLY_STOPPING_ROWS", 10)
    launches = made_launches(["a"] * 60 + ["b"] * 60, grid_x=np.arange(1, 121))
    for labels in ([0] * 60 + [1] * 60, [0] * 60 + [1] * 59 + [2]):
        encoder, examples = examples_of(launches, labels)
        model = Model(encoder, train("mlp", examples, seed=0))
        assert (predict_launches([model], launches)[0] == labels).mean() > 0.9


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _, examples = examples_of(made_launches(["a", "b"]), [0, 1])
    for module in ("sklearn", "sklearn.linear_model"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("analysis"))):
        train("sgd", examples, seed=0)
