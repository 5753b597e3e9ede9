"""The section of labels beside kernel and size, short: kernel and size need no labels to be close."""

from __future__ import annotations

from tests.fidelity import labels_on_gpus
from tests.fidelity.section import Effort


def test_kernel_and_size_are_closer_than_labelled_clusters() -> None:
    section = labels_on_gpus.section(Effort.SHORT)
    assert "Synthetic" in section.markdown()
    errors = {(row[2].partition(" (")[0], row[3]): float(row[6]) for row in section.rows}
    assert len(errors) == len(section.rows) == 3
    assert errors["kernel and size", "-"] < errors["clusters of counters", "sgd"]
