"""Parameters that multiply a method's work are bounded: submitters choose them for a lab's server."""

from __future__ import annotations

import pytest

from assay_sampling.errors import ParameterError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.registry import checked_parameters
from tests.support.sampling.made_launches import made_launches


@pytest.mark.parametrize(
    ("method", "name", "most"),
    [
        ("pks", "k", 10_000),
        ("pks", "k_max", 10_000),
        ("pks", "seeds", 1_000),
        ("tbpoint", "max_distinct", 40_000),
        ("random", "repetitions", 10_000),
        ("systematic", "repetitions", 10_000),
        ("stratified", "repetitions", 10_000),
    ],
)
def test_work_is_bounded_by_arithmetic(method: str, name: str, most: int) -> None:
    profile = Profile(light=made_launches(["k"] * 4, duration_ns=[1, 2, 3, 4]))
    assert getattr(checked_parameters(method, profile, {name: most}), name) == most
    with pytest.raises(ParameterError, match=f"less than or equal to {most}"):
        checked_parameters(method, profile, {name: most + 1})
