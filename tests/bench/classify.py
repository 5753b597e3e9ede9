"""Classification: encode and predict millions of launches with shared models, beside plain scikit-learn.

Both use the same trained models and the same encoder. The peer does what a script does: it encodes and
predicts every launch, 100,000 at a time. It is so slow that only its first chunk is run; its rate counts.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from sklearn.naive_bayes import GaussianNB

from assay_sampling.labelling.classifiers import (
    MODEL_NAMES,
    Examples,
    FeatureClassifier,
    Model,
    predict_launches,
    train,
)
from assay_sampling.labelling.encoding import Encoder
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.signatures import SIGNATURE_COLUMNS, distinct_signatures
from tests.bench.made_data import light_table, names_for
from tests.bench.measure import Measurement

WINDOW_LAUNCHES = 5_000
GROUPS = 20
CHUNK_LAUNCHES = 100_000
PEER_CHUNKS = 1


def _launches(count: int, signatures: int) -> Launches:
    """A light recording with about ``signatures`` distinct signatures: 300 kernels, many shapes."""
    kernels = 300
    table = light_table(count, kernels=kernels, shapes=max(1, signatures // kernels))
    return Launches(table, names_for(kernels), ("generated",))


def _models(launches: Launches) -> tuple[list[Model], list[FeatureClassifier]]:
    """The three models trained on a window whose groups follow duration; and as plain estimators."""
    window = launches.slice(0, WINDOW_LAUNCHES)
    duration = window.column("duration_ns")
    edges = np.quantile(duration, np.linspace(0, 1, GROUPS + 1)[1:-1])
    labels = np.searchsorted(edges, duration).astype(np.int32)
    signatures = distinct_signatures(window)
    encoder = Encoder.fit(signatures.columns, launches.names)
    features = encoder.transform(signatures.columns)
    examples = Examples.of(features, encoder.numeric, signatures.inverse, labels)
    classifiers = [train(name, examples, seed=0) for name in MODEL_NAMES]
    return [Model(encoder, c) for c in classifiers], [_plain_estimator(c, examples) for c in classifiers]


def _plain_estimator(classifier: FeatureClassifier, examples: Examples) -> FeatureClassifier:
    """The classifier with scikit-learn's own estimator inside: ours answers for GaussianNB faster."""
    if classifier.name != "gaussian_nb":
        return classifier
    features = examples.features[examples.signature][:, classifier.used]
    standard = (features - classifier.mean) / classifier.scale
    fitted = GaussianNB().fit(standard, examples.label, sample_weight=examples.weight)
    return replace(classifier, estimator=fitted)


def _ours(launches: int, signatures: int) -> Measurement:
    recording = _launches(launches, signatures)
    models, _ = _models(recording)
    began = time.perf_counter()
    found = predict_launches(models, recording)
    seconds = time.perf_counter() - began
    assert found.shape == (len(MODEL_NAMES), launches)
    return Measurement(launches, seconds, {"distinct": len(distinct_signatures(recording))})


def _plain(launches: int, signatures: int) -> Measurement:
    rows = min(PEER_CHUNKS * CHUNK_LAUNCHES, launches)
    # Launches are drawn independently: the first of many are like those of a short recording.
    recording = _launches(max(rows, WINDOW_LAUNCHES), signatures)
    models, plain = _models(recording)
    ours = predict_launches(models, recording.slice(0, rows))
    seconds, same = 0.0, 0
    for start in range(0, rows, CHUNK_LAUNCHES):
        chunk = recording.slice(start, CHUNK_LAUNCHES)
        began = time.perf_counter()
        features = models[0].encoder.transform({n: chunk.column(n) for n in SIGNATURE_COLUMNS})
        found = [classifier.predict(features) for classifier in plain]
        seconds += time.perf_counter() - began
        same += int((np.stack(found) == ours[:, start : start + CHUNK_LAUNCHES]).sum())
    # The same answers, or the comparison would mean nothing (a tie may fall either way in float32).
    assert same >= 0.999 * rows * len(models), f"{same} of {rows * len(models)} answers agree"
    return Measurement(rows, seconds, {})


def assay_few(launches: int) -> Measurement:
    """Ours, about 3,000 distinct signatures."""
    return _ours(launches, 3_000)


def assay_many(launches: int) -> Measurement:
    """Ours, about 500,000 distinct signatures."""
    return _ours(launches, 500_000)


def scikit_learn_few(launches: int) -> Measurement:
    """Plain predict, about 3,000 distinct signatures; the first chunk only."""
    return _plain(launches, 3_000)


def scikit_learn_many(launches: int) -> Measurement:
    """Plain predict, about 500,000 distinct signatures; the first chunk only."""
    return _plain(launches, 500_000)
