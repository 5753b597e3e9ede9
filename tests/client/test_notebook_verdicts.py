"""What a notebook shows first of a selection, a score and a comparison: whether to trust it."""

from __future__ import annotations

from pathlib import Path

import pytest

import assay
from assay_sampling.errors import ParameterError
from tests.support.client import hand_made

LAUNCHES = 400


@pytest.fixture
def profile(tmp_path: Path) -> assay.Profile:
    return assay.Profile.read(hand_made.write_kineto(tmp_path / "light.txt", LAUNCHES))


def test_selections_scores_and_comparisons_begin_with_their_verdict(profile: assay.Profile) -> None:
    selection = profile.select("balanced")
    score = selection.evaluate(profile)
    comparison = profile.compare("stem", "balanced")
    assert comparison.verdict is not None
    for found, name in ((selection, "Selection"), (score, "Evaluation"), (comparison, "Comparison")):
        assert found.verdict is not None
        assert found.verdict.startswith(("Trust it: ", "Do not trust it: "))
        assert repr(found).startswith(f"{found.verdict} {name}(")
        assert found._repr_html_().startswith(f"<div><p><strong>{found.verdict}</strong></p>")
    one = profile.select("random", launches=1)
    assert repr(one).startswith("Do not trust it: ")


def test_without_a_method_the_recommended_one_is_taken(profile: assay.Profile) -> None:
    found = profile.select()
    assert found.method in ("stem", "balanced")
    assert found.to_dict() == profile.select(found.method).to_dict()
    with pytest.raises(ParameterError, match="no method is named"):
        profile.select(k=3)
