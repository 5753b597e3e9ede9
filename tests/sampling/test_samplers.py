"""The seam of selection methods: names, parameters, plug-ins; and the two random baselines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.errors import (
    CounterUnavailableError,
    MisalignedError,
    ParameterError,
    RefusedError,
)
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import TableMetadata, origin_of
from assay_sampling.methods import registry
from assay_sampling.methods.base import Sampler
from assay_sampling.methods.registry import samplers, select
from assay_sampling.readers.opening import read_launches
from tests.support.sampling.counted_launches import table2_launches
from tests.support.sampling.made_launches import made_launches

BUILT_IN = [name for name in samplers() if name not in metadata.entry_points(group="assay.samplers").names]


def light(*durations: int | None) -> Profile:
    return Profile(
        light=made_launches(["k"] * len(durations), duration_ns=list(durations), source="l.sqlite")
    )


def timed_launches(kernels: list[str], *, source: str, synthetic: bool = True) -> Launches:
    metadata = TableMetadata("light", origin=origin_of(synthetic=synthetic))
    return made_launches(kernels, metadata=metadata, source=source, duration_ns=[50, 60, 70])


def detailed(cycles: list[float], **columns: Any) -> Launches:
    return table2_launches(np.arange(float(len(cycles)))[:, None], cycles, **columns)


def test_the_methods_that_are_built_in() -> None:
    assert list(samplers())[:3] == ["pks", "random", "systematic"]
    for name in ("pks", "random", "systematic"):
        sampler = samplers()[name]
        assert isinstance(sampler, Sampler)
        assert sampler.name == name
        assert sampler.parameters().model_dump() is not None


def test_a_method_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(
        ParameterError, match=r"no method 'pka'; did you mean pks\? The methods are pks, random, systematic"
    ):
        select("pka", light(1), {})


@pytest.mark.parametrize(
    ("method", "parameters", "shown"),
    [
        ("pks", {"clusters": "3"}, "no parameter 'clusters'; it has weights, features, mixing, k, k_max"),
        ("pks", {"k": "three"}, "parameter 'k': input should be a valid integer.*not 'three'"),
        ("pks", {"k": "0"}, "greater than or equal to 1, not '0'"),
        ("pks", {"k_max": -1}, "parameter 'k_max'"),
        ("pks", {"target_error_percent": "nan"}, "finite number"),
        ("pks", {"target_error_percent": "-1"}, "greater than or equal to 0"),
        ("pks", {"features": "table3"}, "'table3' is neither a feature set nor a counter"),
        ("pks", {"representative": "median"}, "'auto', 'first', 'centre', 'random' or 'weighted_median'"),
        ("pks", {"cost": "dram_bytes"}, "parameter 'cost'"),
        ("random", {"launches": "0"}, "greater than or equal to 1"),
        ("random", {"start": "0"}, "no parameter 'start'; it has weights, launches"),
        ("systematic", {"start": "-1"}, "greater than or equal to 0"),
        ("systematic", {"start": "inf"}, "finite number"),
        ("sieve", {"launches_per_group": "9" * 20}, "'launches_per_group': input should be at most 2\\^53"),
        ("random", {"launches": 10**30}, r"at most 2\^53"),
    ],
)
def test_wrong_parameters_are_named(method: str, parameters: dict[str, Any], shown: str) -> None:
    with pytest.raises(ParameterError, match=shown):
        select(method, Profile(detailed=detailed([1.0, 2.0])), parameters)


def test_texts_are_taken_for_the_numbers_they_spell() -> None:
    profile = Profile(detailed=detailed([5.0, 6.0, 7.0]))
    selection = select("pks", profile, {"k": "2", "target_error_percent": "0.5", "representative": "centre"})
    assert selection.parameters == {
        "weights": None,
        "features": "table2",
        "mixing": "never",
        "k": 2,
        "k_max": 20,
        "target_error_percent": 0.5,
        "representative": "centre",
        "cost": None,
        "launches_per_group": 1,
        "least_speedup": None,
        "seeds": None,
    }
    # Two clusters of counters; the three kernels keep groups of their own.
    assert len(selection.group_launches) == 3


def test_pks_without_counters_does_not_apply() -> None:
    for profile in (light(1, 2), Profile(detailed=made_launches(["k"], duration_ns=[1], source="d.csv"))):
        with pytest.raises(RefusedError) as caught:
            select("pks", profile, {})
        assert caught.value.cause == "PKS not applicable: no counters"
        assert caught.value.subject in ("l.sqlite", "d.csv")


def test_how_levels_are_matched_concerns_only_two() -> None:
    with pytest.raises(ParameterError, match="match_kind apply to two levels only"):
        select("pks", Profile(detailed=detailed([1.0, 2.0])), {"match_kind": "position"})


def test_pks_on_two_levels_takes_the_way_of_two_levels() -> None:
    counted = detailed([5.0, 6.0, 7.0, 8.0])
    timed = made_launches(
        ["kernel"] * 6,
        duration_ns=[50, 60, 70, 80, 90, 100],
        metadata=registry_metadata("light"),
        source="light.sqlite",
    )
    selection = select(
        "pks", Profile(detailed=counted, light=timed), {"k": 1, "match_kind": "name_block"}, seed=0
    )
    assert selection.evaluation.quantity == "duration_ns"
    assert selection.evaluation.total == 450
    assert selection.group_launches.sum() == 6
    assert selection.parameters["match_kind"] == "name_block"
    assert "two_level" in selection.document().to_dict()


def registry_metadata(level: Any) -> Any:
    from assay_sampling.launches.table import TableMetadata  # noqa: PLC0415

    return TableMetadata(level, origin="synthetic")


@pytest.mark.parametrize("method", ["pks", "random", "systematic"])
def test_no_launches_are_refused(method: str) -> None:
    empty = detailed([1.0]).slice(0, 0)
    with pytest.raises(RefusedError):
        select(method, Profile(detailed=empty), {})


def test_pks_without_launches_says_so() -> None:
    with pytest.raises(RefusedError, match="holds no launches"):
        select("random", Profile(detailed=detailed([1.0]).slice(0, 0)), {})
    with pytest.raises(RefusedError, match="no recording"):
        Profile()


@pytest.mark.parametrize("method", ["pks", "random", "systematic"])
def test_one_launch_stands_for_itself(method: str) -> None:
    selection = select(method, Profile(detailed=detailed([9.0])), {}, seed=1)
    assert selection.evaluation.error_percent == 0
    assert selection.evaluation.speedup == 1
    assert selection.document().to_dict()["groups"][0]["launches"] == 1


@pytest.mark.parametrize("method", ["pks", "random", "systematic"])
def test_equal_launches_are_projected_exactly(method: str) -> None:
    launches = table2_launches(np.ones((40, 1)), [4.0] * 40)
    selection = select(method, Profile(detailed=launches), {}, seed=2)
    assert selection.evaluation.error_percent == pytest.approx(0, abs=1e-12)
    assert selection.evaluation.group_error_percent == pytest.approx(0, abs=1e-12)
    assert selection.instruction_share is not None
    assert selection.instruction_share.tolist() == [1.0]


@given(st.integers(1, 3000), st.one_of(st.none(), st.integers(1, 4000)), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_what_holds_for_every_sample(n: int, asked: int | None, seed: int) -> None:
    profile = Profile(light=made_launches(["k"] * n, duration_ns=np.arange(1, n + 1)))
    for method in ("random", "systematic"):
        selection = select(method, profile, {"launches": asked}, seed)
        rows = selection.representatives.row
        size = min(n, max(10, -(-n // 100)) if asked is None else asked)
        assert selection.parameters["launches"] == len(rows) == size
        assert (np.diff(rows) > 0).all()
        assert 0 <= rows[0] <= rows[-1] < n
        assert selection.representatives.weight == pytest.approx(n / size)
        assert selection.representatives.weight.sum() == pytest.approx(n)
        assert selection.group_launches.tolist() == [n]
        assert selection.evaluation.total == n * (n + 1) / 2
        assert selection.instruction_share is None
        again = select(method, profile, {"launches": asked}, seed)
        assert np.array_equal(rows, again.representatives.row)
        if method == "systematic":
            gaps = np.diff(rows)
            assert gaps.size == 0 or gaps.max() - gaps.min() <= 1


def test_random_launches_are_drawn_uniformly() -> None:
    profile = light(*range(1, 11))
    drawn = [select("random", profile, {"launches": 3}, seed).representatives.row for seed in range(400)]
    counts = np.bincount(np.concatenate(drawn))
    # 120 expected each, standard deviation 9.
    assert (np.abs(counts - 120) < 45).all()


def test_random_projections_are_unbiased() -> None:
    profile = light(*(i * i for i in range(1, 31)))
    projected = [select("random", profile, {"launches": 5}, seed).evaluation.projected for seed in range(500)]
    # The standard deviation of the mean is 1.7 %.
    assert np.mean(projected) == pytest.approx(9455, rel=0.06)


def test_systematic_launches_are_at_equal_spacing_from_their_start() -> None:
    profile = light(*range(1, 11))
    selection = select("systematic", profile, {"launches": "4", "start": "1.5"})
    assert selection.representatives.row.tolist() == [1, 4, 6, 9]  # floor(1.5 + i * 2.5)
    assert selection.representatives.weight.tolist() == [2.5] * 4
    assert selection.evaluation.projected == 2.5 * (2 + 5 + 7 + 10)
    first = select("systematic", profile, {"launches": 5, "start": 0})
    assert first.representatives.row.tolist() == [0, 2, 4, 6, 8]
    last = select("systematic", profile, {"launches": 4, "start": float(np.nextafter(2.5, 0))})
    assert last.representatives.row.tolist() == [2, 4, 7, 9]


def test_the_start_of_a_systematic_sample_lies_in_the_period() -> None:
    profile = light(*range(1, 11))
    starts = [select("systematic", profile, {"launches": 2}, seed).parameters["start"] for seed in range(200)]
    assert all(0 <= start < 5 for start in starts)
    assert min(starts) < 1
    assert max(starts) > 4
    with pytest.raises(ParameterError, match=r"start is 5, but the period is 5 launches"):
        select("systematic", profile, {"launches": 2, "start": 5})


@pytest.mark.parametrize("method", ["random", "systematic"])
def test_what_a_sample_is_scored_in(method: str) -> None:
    counted, timed = detailed([5.0, 6.0]), light(50, 60, 70).light
    assert select(method, Profile(detailed=counted), {}).evaluation.quantity == "cycles_gpc_avg"
    assert select(method, Profile(light=timed), {}).evaluation.quantity == "duration_ns"
    whole = timed_launches(["kernel"] * 3, source="l.sqlite")
    both = select(method, Profile(detailed=counted, light=whole), {})
    assert (both.evaluation.quantity, both.evaluation.total) == ("duration_ns", 180)
    assert both.profile.sources == ("l.sqlite",)
    uncounted = Profile(detailed=made_launches(["k"], duration_ns=[7]))
    assert select(method, uncounted, {}).evaluation.total == 7
    with pytest.raises(
        CounterUnavailableError,
        match=r"l\.sqlite.*'duration_ns' was not measured .* 1 of 2.* launch 1",
    ):
        select(method, light(1, None), {})


@pytest.mark.parametrize("method", ["random", "systematic"])
def test_representatives_that_took_no_time_are_refused(method: str) -> None:
    with pytest.raises(RefusedError, match="representatives have no cost"):
        select(method, light(*[0] * 99, 10), {"launches": 2}, seed=0)


def test_a_recording_without_counters_is_sampled_in_nanoseconds(shared_data: Path) -> None:
    launches = read_launches(shared_data / "nsys" / "a100_nerf_1106_kernels.sqlite")
    selection = select("random", Profile(light=launches), {"launches": 100}, seed=0)
    assert selection.group_launches.tolist() == [1106]
    assert selection.evaluation.unit == "ns"
    assert selection.evaluation.total == launches.column("duration_ns").sum()
    rows = selection.representatives.row
    expected = launches.column("duration_ns")[rows].sum() * 1106 / 100
    assert selection.evaluation.projected == pytest.approx(expected, rel=1e-12)


PLUGIN = """
import numpy as np
from pydantic import BaseModel
from assay_sampling.methods.base import grouped_selection
class Nothing(BaseModel):
    depth: int = 1
class Sampler:
    name = "own"
    parameters = Nothing
    def select(self, profile, parameters, *, seed):
        labels = np.zeros(len(profile.whole), np.int64)
        first, weights = np.array([0]), np.array([float(parameters.depth)])
        return grouped_selection(
            profile, self.name, parameters, seed, labels=labels, rows=first, weights=weights
        )
instance = Sampler()
no_sampler = 3
"""


@pytest.fixture
def plug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    (tmp_path / "assay_own_plugin.py").write_text(PLUGIN)
    (tmp_path / "assay_broken_plugin.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("assay_own_plugin", "assay_broken_plugin"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    def install(**values: str) -> None:
        points = metadata.EntryPoints(
            metadata.EntryPoint(name, value, registry.ENTRY_POINT_GROUP) for name, value in values.items()
        )
        monkeypatch.setattr(registry.metadata, "entry_points", points.select)

    return install


@pytest.mark.parametrize("value", ["assay_own_plugin:instance", "assay_own_plugin:Sampler"])
def test_another_package_adds_a_method(plug: Callable[..., None], value: str) -> None:
    plug(own=value)
    assert list(samplers()) == [*BUILT_IN, "own"]
    selection = select("own", light(1), {"depth": "4"}, 9)
    assert (selection.method, selection.parameters["depth"], selection.seed) == ("own", 4, 9)
    assert selection.representatives.weight.tolist() == [4.0]
    with pytest.raises(ParameterError, match=r"own: there is no parameter 'deep'; did you mean depth\?"):
        select("own", light(1), {"deep": 1})


def test_a_broken_plugin_breaks_nothing_but_itself(plug: Callable[..., None]) -> None:
    plug(own="assay_own_plugin:instance", broken="assay_broken_plugin:Sampler")
    assert "broken" in samplers()
    assert len(samplers()) == len(BUILT_IN) + 2
    assert select("random", light(5), {}).evaluation.total == 5
    with pytest.raises(ParameterError, match=r"'broken'.*ModuleNotFoundError.*a_module_that_is_not_there"):
        select("broken", light(1), {})


@pytest.mark.parametrize("value", ["assay_own_plugin:no_sampler", "assay_own_plugin:Nothing"])
def test_a_plugin_that_is_no_sampler_is_named(plug: Callable[..., None], value: str) -> None:
    plug(own=value)
    with pytest.raises(ParameterError, match=f"method 'own'.*{value} is not a sampler"):
        samplers()["own"]


def test_a_plugin_cannot_take_the_name_of_a_built_in_method(plug: Callable[..., None]) -> None:
    plug(random="assay_own_plugin:instance")
    assert list(samplers()) == BUILT_IN
    assert select("random", light(5), {}).evaluation.total == 5


def test_kernels_whose_names_differ_late_are_two() -> None:
    names = ["void f<" + "int, " * 1000 + last + ">()" for last in ("float", "double")]
    selection = select("random", Profile(light=made_launches(names, duration_ns=[1, 2])), {})
    assert selection.profile.kernels == 2
    assert selection.representatives.kernel == tuple(names)


@pytest.mark.parametrize("method", ["random", "systematic"])
def test_levels_of_two_workloads_are_refused_by_every_method(method: str) -> None:
    window = detailed([1.0, 2.0, 3.0])
    other = timed_launches(["another"] * 3, source="other.sqlite")
    with pytest.raises(MisalignedError, match=r"other\.sqlite.*first differences"):
        select(method, Profile(detailed=window, light=other), {"launches": 1})
    measured = timed_launches(["kernel"] * 3, source="other.sqlite", synthetic=False)
    with pytest.raises(RefusedError, match="is synthetic and the light run is measured"):
        select(method, Profile(detailed=window, light=measured), {"launches": 1})
