"""Two-level selection: against known truth, and what it must refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay_sampling.counters.definitions import CYCLE_COUNTERS, FEATURE_SETS, registry
from assay_sampling.errors import CounterUnavailableError, MisalignedError, RefusedError
from assay_sampling.labelling.classifiers import MODEL_NAMES
from assay_sampling.labelling.within_kernel import KERNEL_MODEL_NAMES
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Condition, CounterColumn, Device, TableMetadata
from assay_sampling.methods.pks import two_level
from assay_sampling.methods.pks.principal_kernels import PrincipalKernels, nearest_groups, principal_kernels
from assay_sampling.methods.registry import select
from assay_sampling.readers.base import ReadOptions
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.error_parts.cells import kernel_and_size
from assay_sampling.scoring.error_parts.decomposition import UNKNOWN_GROUP
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.scoring.selection import Selection
from tests.support.sampling.made_launches import CYCLES, made_launches
from tests.support.sampling.published import PUBLISHED_PKS
from tests.support.sampling.saved_scores import score_saved
from tests.support.sampling.two_level_profiles import CYCLES_PER_NS, light_half, two_level_selection

WINDOW = 1_000


# One worker runs the whole module: its fixtures take long.
pytestmark = pytest.mark.xdist_group("two_level")


@pytest.fixture(scope="module")
def known(shared_data: Path) -> Launches:
    """5,000 launches with all counters: the truth that the two-level profile withholds from 1,000 on."""
    path = shared_data / "ncu" / "synthetic_v100_5000_raw_page.csv.gz"
    return read_launches(path, ReadOptions(synthetic=True))


@pytest.fixture(scope="module")
def profile(known: Launches) -> Profile:
    return Profile(detailed=known.slice(0, WINDOW), light=light_half(known))


@pytest.fixture(scope="module")
def selection(profile: Profile) -> Selection:
    return two_level_selection(profile)


@pytest.fixture(scope="module")
def window(known: Launches) -> PrincipalKernels:
    return principal_kernels(known.slice(0, WINDOW))


@pytest.fixture(scope="module")
def truth(window: PrincipalKernels, known: Launches) -> np.ndarray:
    """Groups of the rest by the nearest centres of the withheld counters."""
    return nearest_groups(window, known.slice(WINDOW))


def error_against_cycles(weights: np.ndarray, rows: np.ndarray, known: Launches) -> float:
    """Error in percent on the cycles that were withheld."""
    cycles = known.column("cycles_gpc_avg")
    return 100 * abs((weights * cycles[rows]).sum() - cycles.sum()) / cycles.sum()


def error_of(selection: Selection, known: Launches) -> float:
    chosen = selection.representatives
    return error_against_cycles(chosen.weight, chosen.row, known)


def agreement_percent(selection: Selection, truth: np.ndarray) -> float:
    assert selection.labels is not None
    return 100 * float((selection.labels[WINDOW:] == truth).mean())


def test_known_truth_is_met(
    selection: Selection, known: Launches, window: PrincipalKernels, truth: np.ndarray
) -> None:
    facts = selection.extra["two_level"]
    assert facts["window"]["error_percent"] < 5.0
    assert facts["match_percent"] == 100.0
    assert facts["classified_launches"] == 4_000
    assert facts["unknown"] == {"launches": 0, "groups": 0}
    assert error_of(selection, known) < 10.0
    # Not far from what the withheld counters themselves would have projected, from the same window.
    counts = window.counts + np.bincount(truth, minlength=len(window.counts))
    with_counters = error_against_cycles(counts, window.representative_rows, known)
    assert abs(error_of(selection, known) - with_counters) < 4.0
    assert agreement_percent(selection, truth) > 98.0
    for model in facts["models"].values():
        assert model["error_percent"] < 10.0
        assert model["chronological_accuracy_percent"] > 99.0


def test_shuffled_labels_make_error_and_agreement_worse(
    profile: Profile,
    selection: Selection,
    known: Launches,
    truth: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shuffled(launches: Launches, **parameters: Any) -> PrincipalKernels:
        found = principal_kernels(launches, **parameters)
        return replace(found, labels=np.random.default_rng(1).permutation(found.labels))

    monkeypatch.setattr(two_level, "principal_kernels", shuffled)
    worse = two_level_selection(profile)
    assert error_of(worse, known) > 2 * error_of(selection, known)
    assert agreement_percent(worse, truth) < agreement_percent(selection, truth) - 30


def test_the_whole_workload_is_scored_in_the_light_runs_nanoseconds(
    selection: Selection, profile: Profile
) -> None:
    assert profile.light is not None
    duration_ns = profile.light.column("duration_ns")
    scores = selection.evaluation
    chosen = selection.representatives
    assert (scores.quantity, scores.unit) == ("duration_ns", "ns")
    assert scores.total == duration_ns.sum()
    assert chosen.weight.sum() == len(duration_ns)
    assert scores.projected == pytest.approx((chosen.weight * duration_ns[chosen.row]).sum())
    assert scores.speedup == pytest.approx(duration_ns.sum() / duration_ns[chosen.row].sum())
    assert selection.labels is not None
    assert np.bincount(selection.labels).tolist() == chosen.weight.tolist()
    assert selection.group_launches.tolist() == chosen.weight.tolist()
    facts = selection.extra["two_level"]
    assert facts["window"]["cost"]["quantity"] == "cycles_gpc_avg"
    assert facts["models"][facts["chosen_model"]]["error_percent"] == scores.error_percent


def test_the_windows_numbers_are_those_of_pks_on_the_window(
    selection: Selection, profile: Profile, known: Launches
) -> None:
    alone = select("pks", Profile(detailed=known.slice(0, WINDOW)), PUBLISHED_PKS, 0).document().to_dict()
    facts = selection.document().to_dict()
    assert facts["sweep"] == alone["sweep"]
    assert facts["pca_components"] == alone["pca_components"]
    window = facts["two_level"]["window"]
    assert window["launches"] == window["matched_launches"] == WINDOW
    assert window["first_launch"] == 0
    assert window["k"] == len(alone["groups"])
    for key in ("cost", "error_percent", "signed_error_percent", "group_error_percent", "speedup"):
        assert window[key] == alone[key]
    firsts = [group["representatives"][0]["launch"] for group in facts["groups"]]
    assert firsts == [group["representatives"][0]["launch"] for group in alone["groups"]]


def test_labels_come_from_the_best_model_and_all_are_reported(selection: Selection) -> None:
    facts = selection.extra["two_level"]
    models = facts["models"]
    assert tuple(models) == (*MODEL_NAMES, "combined", *KERNEL_MODEL_NAMES)
    best = max(model["expected_accuracy_percent"] for model in models.values())
    assert models[facts["chosen_model"]]["expected_accuracy_percent"] == best
    assert facts["chosen_model"] == "scaled_counters"
    # 40 new signatures of 108 launches, which take 5 % of the time.
    assert 4 < facts["classified_unseen_time_percent"] < 8
    for model in models.values():
        assert set(model) == {
            "chronological_accuracy_percent", "chronological_balanced_accuracy_percent",
            "grouped_accuracy_percent", "grouped_balanced_accuracy_percent",
            "expected_accuracy_percent",
            "error_percent", "signed_error_percent", "group_error_percent", "speedup",
        }  # fmt: skip
        assert model["group_error_percent"] >= model["error_percent"]
        assert 0 <= model["grouped_accuracy_percent"] <= 100
    assert 90 < facts["agreement_percent"] <= 100
    assert 0 <= facts["ambiguous_percent"] < 5


def test_the_same_seed_gives_the_same_document(selection: Selection, profile: Profile) -> None:
    assert two_level_selection(profile).document().to_dict() == selection.document().to_dict()


def test_the_sampler_hands_both_levels_on(selection: Selection, profile: Profile) -> None:
    found = select("pks", profile, {**PUBLISHED_PKS, "k_max": "20"}, 0)
    # What is expected elsewhere, and so the verdict, is added to a finished selection.
    made, alone = found.document().to_dict(), selection.document().to_dict()
    later = {"verdict", "expected_elsewhere"}
    assert {key: made[key] for key in made.keys() - later} == {
        key: alone[key] for key in alone.keys() - later
    }


def test_a_window_need_not_start_at_zero(known: Launches) -> None:
    profile = Profile(detailed=known.slice(2_000, WINDOW), light=light_half(known))
    found = two_level_selection(profile)
    facts = found.extra["two_level"]
    assert facts["window"]["first_launch"] == 2_000
    assert facts["match_percent"] == 100.0
    assert facts["classified_launches"] + facts["unknown"]["launches"] == 4_000
    k = facts["window"]["k"]
    alone = principal_kernels(known.slice(2_000, WINDOW), k=k)
    assert found.labels is not None
    assert np.array_equal(found.labels[2_000:3_000], alone.labels)
    assert (
        found.representatives.row[: len(alone.counts)].tolist()
        == (alone.representative_rows + 2_000).tolist()
    )


def test_a_window_over_everything_needs_no_model(known: Launches) -> None:
    found = two_level_selection(Profile(detailed=known, light=light_half(known)))
    facts = found.extra["two_level"]
    assert facts["models"] is None
    assert facts["chosen_model"] is None
    assert facts["agreement_percent"] is None
    assert facts["classified_launches"] == 0
    # Durations are the cycles over a constant, rounded: so is the error.
    assert found.evaluation.error_percent == pytest.approx(facts["window"]["error_percent"], abs=0.01)
    assert found.evaluation.total == pytest.approx(
        known.column("cycles_gpc_avg").sum() / CYCLES_PER_NS, rel=1e-5
    )


# Small profiles, in which every number can be worked out by hand.

FEATURES = [
    CounterColumn(name, registry()[name].unit, registry()[name].metrics[0].name, registry()[name].variant)
    for name in FEATURE_SETS["table2"]
]


def counted(kernels: list[str], *, metadata: TableMetadata | None = None, **columns: Any) -> Launches:
    """A detailed run: all launches of a kernel have the same counters, and 100 cycles a letter's number."""
    sizes = np.array([float(ord(kernel[0]) - ord("a") + 1) for kernel in kernels])
    counters = {column.name: sizes**2 for column in FEATURES}
    return made_launches(
        kernels,
        counters=[CYCLES, *FEATURES],
        metadata=metadata or TableMetadata("detailed"),
        source="detailed.csv",
        **{"cycles_gpc_avg": 100 * sizes, **counters, **columns},
    )


def light(kernels: list[str], **columns: Any) -> Launches:
    return made_launches(
        kernels, source="light.sqlite", **{"duration_ns": np.arange(1, len(kernels) + 1) * 10, **columns}
    )


def test_each_unknown_signature_is_a_group_of_its_own() -> None:
    kernels = [*"abab", *"abzab", "y", "z", "z"]
    grids = [1] * 4 + [1, 1, 7, 1, 1, 5, 7, 8]
    profile = Profile(detailed=counted(list("abab")), light=light(kernels, grid_x=grids))
    found = two_level_selection(profile)
    facts = found.extra["two_level"]
    assert facts["unknown"] == {"launches": 4, "groups": 3}
    assert facts["classified_launches"] == 4
    assert facts["window"]["k"] == 2
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 0, 1, 0, 1, 2, 0, 1, 3, 2, 4]
    assert found.representatives.row.tolist() == [0, 1, 6, 9, 11]
    assert found.representatives.weight.tolist() == [4, 4, 2, 1, 1]
    assert found.representatives.kernel == ("a", "b", "z", "y", "z")
    # Durations are 10, 20, ... 120 ns.
    assert found.evaluation.total == 780
    assert found.evaluation.projected == 4 * 10 + 4 * 20 + 2 * 70 + 100 + 120
    assert found.evaluation.simulated == 10 + 20 + 70 + 100 + 120
    true = [10 + 30 + 50 + 80, 20 + 40 + 60 + 90, 70 + 110, 100, 120]
    projected = [40, 80, 140, 100, 120]
    wrong = sum(abs(p - t) for p, t in zip(projected, true, strict=True))
    assert found.evaluation.group_error_percent == pytest.approx(100 * wrong / 780)


def test_a_rest_of_unknown_kernels_only_needs_no_model() -> None:
    found = two_level_selection(Profile(detailed=counted(["a", "a"]), light=light(["a", "a", "x", "y"])))
    assert found.extra["two_level"]["models"] is None
    assert found.representatives.weight.tolist() == [2, 1, 1]


def test_a_window_of_one_group_takes_all_known_kernels() -> None:
    profile = Profile(detailed=counted(["a"] * 5), light=light(["a"] * 9, grid_x=[1] * 5 + [2] * 4))
    found = two_level_selection(profile, k=1)
    facts = found.extra["two_level"]
    assert found.representatives.weight.tolist() == [9]
    assert facts["agreement_percent"] == 100.0
    assert facts["chosen_model"] == "scaled_counters"
    assert facts["models"]["mlp"]["chronological_accuracy_percent"] == 100.0
    assert facts["models"]["mlp"]["grouped_accuracy_percent"] is None


def test_a_window_of_one_launch_works() -> None:
    found = two_level_selection(Profile(detailed=counted(["a"]), light=light(["a", "a"])))
    facts = found.extra["two_level"]
    assert facts["models"]["sgd"]["chronological_accuracy_percent"] is None
    assert facts["models"]["sgd"]["expected_accuracy_percent"] is None
    assert facts["chosen_model"] == "scaled_counters"
    assert found.representatives.weight.tolist() == [2]


def test_two_processes_have_windows_of_their_own() -> None:
    detailed = counted([*"ab", *"ba"], process=[0, 0, 1, 1], launch=[1, 2, 0, 1])
    whole = light([*"babba", *"baab"], process=[0] * 5 + [1] * 4, launch=[*range(5), *range(4)])
    found = two_level_selection(Profile(detailed=detailed, light=whole))
    assert found.extra["two_level"]["match_percent"] == 100.0
    assert found.extra["two_level"]["classified_launches"] == 5
    assert found.labels is not None
    assert found.labels.tolist() == [1, 0, 1, 1, 0, 1, 0, 0, 1]
    chosen = found.representatives
    assert list(zip(chosen.process.tolist(), chosen.launch.tolist(), strict=True)) == [(0, 1), (0, 2)]


def test_a_representative_stands_where_it_was_matched_in_the_light_run() -> None:
    # The light run lost launch 1: from there on its ordinals are one behind.
    detailed = counted(["a", "c", *"ab" * 60])
    whole = light(["a", *"ab" * 100])
    found = two_level_selection(Profile(detailed=detailed, light=whole))
    facts = found.extra["two_level"]
    assert facts["match_percent"] == pytest.approx(100 * 121 / 122)
    assert facts["window"]["launches"] == 122
    assert facts["window"]["matched_launches"] == 121
    assert found.representatives.row.tolist() == [0, 2]
    assert found.representatives.kernel == ("a", "b")
    assert found.representatives.weight.tolist() == [101, 100]


def test_levels_that_do_not_hold_the_same_launches_are_refused() -> None:
    detailed = counted(list("abcabc"))
    whole = light([*"abcabd", *"abc" * 20])
    with pytest.raises(MisalignedError) as caught:
        two_level_selection(Profile(detailed=detailed, light=whole))
    text = str(caught.value)
    assert "detailed.csv and light.sqlite: only 83.33 % of the launches match" in text
    assert "detailed run has at launch 5 c grid (1, 1, 1)" in text
    assert "light run has at launch 5 d grid (1, 1, 1)" in text
    found = two_level_selection(Profile(detailed=detailed, light=whole), least_match_percent=80)
    assert found.extra["two_level"]["match_percent"] == pytest.approx(100 * 5 / 6)


def test_a_looser_match_is_flagged() -> None:
    whole = light(list("ababab"), grid_x=[1, 2, 3, 4, 5, 6])
    profile = Profile(detailed=counted(list("abab")), light=whole)
    with pytest.raises(MisalignedError):
        two_level_selection(profile)
    found = two_level_selection(profile, match_kind="name_block")
    assert found.extra["two_level"]["match_kind"] == "name_block"
    assert found.extra["two_level"]["flags"] == ["matched_by_name_block"]


def test_overlapping_launches_are_shown_beside_the_sum() -> None:
    detailed = counted(list("abab"))
    apart = light(list("ababab"), start_ns=np.arange(6) * 1_000)
    facts = two_level_selection(Profile(detailed=detailed, light=apart)).extra["two_level"]
    assert (facts["span_ns"], facts["overlap_percent"], facts["flags"]) == (210, 0.0, [])
    # 10, 20, ... 60 ns, begun every 25: the last two overlap their successors by 15 and 25.
    together = light(list("ababab"), start_ns=np.arange(6) * 25)
    facts = two_level_selection(Profile(detailed=detailed, light=together)).extra["two_level"]
    assert facts["span_ns"] == 10 + 20 + (125 + 60 - 50)
    assert facts["overlap_percent"] == pytest.approx(100 * (210 - 165) / 210)
    assert facts["flags"] == ["concurrent_launches"]
    unknown = two_level_selection(Profile(detailed=detailed, light=light(list("ababab"))))
    assert unknown.extra["two_level"]["span_ns"] is None


def test_what_must_not_be_joined_is_refused() -> None:
    whole = light(list("abab"))
    without = replace(counted(list("abab")), table=counted(list("abab")).table.drop_columns(
        [*(column.name for column in FEATURES), *(n for n in CYCLE_COUNTERS if n == CYCLES.name)]
    ))  # fmt: skip
    with pytest.raises(RefusedError) as caught:
        two_level_selection(Profile(detailed=without, light=whole))
    assert caught.value.cause == "PKS not applicable: no counters"
    with pytest.raises(CounterUnavailableError, match="duration_ns"):
        two_level_selection(
            Profile(detailed=counted(list("abab")), light=light(list("abab"), duration_ns=[None] * 4))
        )
    synthetic = counted(list("abab"), metadata=TableMetadata("detailed", origin="synthetic"))
    with pytest.raises(RefusedError, match="the detailed run is synthetic and the light run is measured"):
        two_level_selection(Profile(detailed=synthetic, light=whole))
    for profile in (Profile(detailed=counted(list("ab"))), Profile(light=whole)):
        with pytest.raises(RefusedError, match=r"the profile has no (light|detailed) run"):
            two_level_selection(profile)
    with pytest.raises(RefusedError, match="one of them holds no launches"):
        two_level_selection(Profile(detailed=counted([]), light=whole))


def test_levels_of_other_gpus_or_conditions_are_refused() -> None:
    def on(name: str, sm_percent: float | None, level: Any) -> TableMetadata:
        condition = Condition("none", "none", sm_percent)
        return TableMetadata(level, condition=condition, devices=(Device(0, name),))

    kernels = list("ababab")
    detailed = counted(list("abab"), metadata=on("V100", 100.0, "detailed"), device=[0] * 4)
    duration_ns = [10] * 6
    for name, share, refused in (
        ("V100", 100.0, None),
        ("v100", None, None),
        ("", 100.0, None),
        ("A100", 100.0, r"two kinds of GPU \(V100 and A100\)"),
        ("V100", 50.0, "two conditions .*sm=100%.*sm=50%"),
    ):
        whole = made_launches(
            kernels, metadata=on(name, share, "light"), duration_ns=duration_ns, device=[0] * 6
        )
        if refused is None:
            assert two_level_selection(Profile(detailed=detailed, light=whole)).labels is not None
        else:
            with pytest.raises(RefusedError, match=refused):
                two_level_selection(Profile(detailed=detailed, light=whole))


def test_several_launches_a_group_are_drawn_from_the_light_run() -> None:
    profile = Profile(detailed=counted(list("abab")), light=light([*"abab", *"ab" * 20]))
    found = two_level_selection(profile, launches_per_group=3, seed=4)
    chosen = found.representatives
    assert found.labels is not None
    assert (found.labels[chosen.row] == chosen.group).all()
    assert np.bincount(chosen.group).tolist() == [3, 3]
    assert chosen.weight.tolist() == [22 / 3] * 6
    assert found.interval is not None
    assert found.parameters["launches_per_group"] == 3
    # Scores of the models stay those of one representative a group.
    one = two_level_selection(profile, seed=4)
    assert found.extra["two_level"]["models"] == one.extra["two_level"]["models"]
    assert one.interval is None


def test_where_labels_come_from() -> None:
    kernels = [*"abab", *"abzab", "y", "z", "z"]
    grids = [1] * 4 + [1, 1, 7, 1, 1, 5, 7, 8]
    profile = Profile(detailed=counted(list("abab")), light=light(kernels, grid_x=grids))
    found = two_level_selection(profile, seeds=2)
    assert found.label_origins is not None
    assert found.label_origins.tolist() == [0] * 4 + [1, 1, 2, 1, 1, 2, 2, 2]
    assert [entry["k"] for entry in found.extra["seeds"]] == [2, 2]


def test_new_shapes_of_known_kernels_are_set_apart_on_request() -> None:
    kernels = [*"abab", *"abab"]
    profile = Profile(detailed=counted(list("abab")), light=light(kernels, grid_x=[1] * 6 + [9, 1]))
    counted_only = two_level_selection(profile, model="sgd")
    facts = counted_only.extra["two_level"]["abstained"]
    # Two signatures prove nothing: no new one is trusted.
    assert (facts["launches"], facts["signatures"], facts["groups"], facts["threshold"]) == (1, 1, 0, None)
    assert counted_only.group_launches.tolist() == [4, 4]
    # Nine times the blocks of a are predicted to have the counters of b, rather.
    scaled = two_level_selection(profile, model="scaled_counters")
    assert scaled.group_launches.tolist() == [3, 5]
    apart = two_level_selection(profile, abstain=True)
    assert apart.group_launches.tolist() == [3, 4, 1]
    assert apart.representatives.row.tolist() == [0, 1, 6]
    assert apart.extra["two_level"]["abstained"]["groups"] == 1
    assert apart.label_origins is not None
    assert apart.label_origins.tolist() == [0] * 4 + [1, 1, 3, 1]


def test_models_are_trained_where_labels_decide_groups_or_one_is_named() -> None:
    kernels = [*"abab", *"abab"]
    profile = Profile(detailed=counted(list("abab")), light=light(kernels, grid_x=[1] * 6 + [9, 1]))
    plain = select("pks", profile, {})
    facts = plain.extra["two_level"]
    assert not facts["labels_used"]
    assert (facts["models"], facts["chosen_model"], facts["abstained"]) == (None, None, None)
    assert (facts["vote_weights"], facts["agreement_percent"]) == (None, None)
    assert plain.labels is not None
    assert plain.labels.min() == 0
    named = select("pks", profile, {"model": "sgd"})
    facts = named.extra["two_level"]
    assert not facts["labels_used"]
    assert facts["chosen_model"] == "sgd"
    assert set(facts["models"]) > set(MODEL_NAMES)
    assert named.labels is not None
    assert named.labels.tolist() == plain.labels.tolist()
    assert named.evaluation == plain.evaluation
    divided = select("pks", profile, {"k": 2}).extra["two_level"]
    published = select("pks", profile, {"mixing": "allowed"}).extra["two_level"]
    for facts in (divided, published):
        assert facts["labels_used"]
        assert set(facts["models"]) > set(MODEL_NAMES)


def test_labels_are_judged_by_what_the_window_has_of_their_kernel_and_size(
    selection: Selection, truth: np.ndarray
) -> None:
    parts = selection.evaluation.parts
    assert parts is not None
    assert parts.not_separated_parts == ("labels", "group_spread")
    assert selection.right_labels is not None
    assert selection.labels is not None
    right = selection.right_labels[WINDOW:]
    known = right != UNKNOWN_GROUP
    assert 0.9 < known.mean() < 1.0
    # What the window says is what counters of these launches say, which it never saw.
    assert (right[known] == truth[known]).mean() > 0.98
    assert parts.labels == 0.0
    assert parts.whole == pytest.approx(selection.evaluation.signed_error_percent)


def test_counters_of_the_light_run_tell_labels_from_representatives(
    profile: Profile, known: Launches, window: PrincipalKernels, truth: np.ndarray
) -> None:
    assert profile.light is not None
    table = profile.light.table
    for name in FEATURE_SETS["table2"]:
        table = table.append_column(known.table.schema.field(name), known.table[name])
    light = replace(profile.light, table=table)
    found = two_level_selection(replace(profile, light=light))
    parts = found.evaluation.parts
    assert parts is not None
    assert parts.not_separated is None
    assert parts.whole == pytest.approx(found.evaluation.signed_error_percent)
    # By hand: what launches like the representatives cost under predicted labels, less under the right ones.
    assert found.labels is not None
    cost, kind = light.column("duration_ns").astype(float), kernel_and_size(light)
    rows = found.representatives.row[np.argsort(found.representatives.group)]
    of_group = np.array(
        [cost[(kind == kind[row]) & (found.labels == group)].mean() for group, row in enumerate(rows)]
    )
    difference = (of_group[found.labels[WINDOW:]] - of_group[truth]).sum()
    assert difference != 0
    assert parts.labels == pytest.approx(100 * difference / cost.sum())


def test_a_saved_selection_gives_the_parts_that_it_had(selection: Selection, profile: Profile) -> None:
    assert profile.light is not None
    saved = SavedSelection.of(selection.document(labels=True), "selection")
    assert score_saved(saved, profile.light).parts == selection.evaluation.parts
    without = SavedSelection.of(selection.document(), "selection")
    parts = score_saved(without, profile.light).parts
    assert parts is not None
    assert parts.representatives is None
    assert parts.not_separated == pytest.approx(selection.evaluation.signed_error_percent)
