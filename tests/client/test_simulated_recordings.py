"""A simulator's log through ``inspect``, ``select``, ``compare`` and ``evaluate``."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.notes.registry import make_note
from tests.support.client import hand_made
from tests.support.sampling.accel_sim_logs import Launch, output
from tests.support.sampling.published import PUBLISHED_PKS_OPTIONS

Assay = Callable[..., Any]
LAUNCHES = 40
ACTIVE = (100, 700, 50)
TOTAL_ACTIVE = sum(ACTIVE[kind] for kind in hand_made.kinds(LAUNCHES))
TOTAL_CYCLES = sum(hand_made.CYCLES[kind] for kind in hand_made.kinds(LAUNCHES))
MANGLED = ("_Z4copyPf", "_Z4gemmIfEvPfi", "_Z6reducePfS_")


def counted(kind: int) -> dict[str, int]:
    """The statistics of SMs that a launch of a kind adds."""
    return {
        "\tL1D_total_cache_accesses": 20 * kind,
        "gpgpu_n_tot_w_icount": 50 * (kind + 1),
        "gpgpu_n_load_insn ": 300 * kind,
        "gpgpu_n_store_insn": 100,
        "gpgpu_n_shmem_insn": 0,
    }


def log(path: Path, names: Sequence[str] = hand_made.KERNELS, slower: int = 1, **changed: str) -> Path:
    """A simulator's log of the launches that the hand-made recordings of silicon hold."""
    launches = [
        Launch(
            name=names[kind],
            traced_id=number + 1,
            grid=(hand_made.GRIDS[kind], 1, 1),
            block=(128, 1, 1),
            cycles=200 + ACTIVE[kind] * slower,
            instructions=1000 * (kind + 1),
            counted=counted(kind),
        )
        for number, kind in enumerate(hand_made.kinds(LAUNCHES))
    ]
    path.write_text(output(launches, **changed))
    return path


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return hand_made.write_raw_page(tmp_path / "page.csv", LAUNCHES)


@pytest.fixture
def simulated(tmp_path: Path) -> Path:
    return log(tmp_path / "run.out")


def document_of(ended: Any) -> Any:
    assert ended.stderr == ""
    assert ended.code == 0
    return json.loads(ended.stdout)


def saved(assay: Assay, method: str, recording: Path, *more: str) -> Path:
    path = recording.with_suffix(f".{method}.json")
    document_of(assay("select", method, recording, "-o", path, "--json", *more))
    return path


def refused(ended: Any) -> str:
    assert ended.code == 7
    return str(ended.stderr)


def test_a_log_is_inspected_like_any_other_file(assay: Assay, simulated: Path) -> None:
    (found,) = document_of(assay("inspect", simulated, "--json"))["files"]
    assert (found["format"], found["origin"], found["synthetic"]) == ("accel-sim-output", "simulated", False)
    assert (found["launches"], found["kernels"], found["levels"]) == (40, 3, ["detailed"])
    shown = assay("inspect", simulated).stdout
    assert "simulated: a cycle-level simulator ran these launches" in shown
    assert f"assay select pks {simulated} -o selection.json" in shown


def test_a_selection_on_a_log_holds_on_another_gpu(assay: Assay, simulated: Path, tmp_path: Path) -> None:
    selection = saved(assay, "pks", simulated, "--param", "k=3", "--param", "features=simulated")
    document = json.loads(selection.read_text())
    assert (document["profile"]["origin"], document["profile"]["simulated"]) == ("simulated", True)
    assert document["cost"] | {"condition": None} == {
        "quantity": "cycles_simulated_active", "unit": "cycle", "condition": None,
        "total": TOTAL_ACTIVE, "projected": TOTAL_ACTIVE,
    }  # fmt: skip
    other = log(tmp_path / "other.out", slower=3, gpgpu_n_clusters="7")
    found = document_of(assay("evaluate", selection, other, "--json"))
    assert (found["error_percent"], found["cost"]["total"]) == (0.0, 3 * TOTAL_ACTIVE)
    assert found["match"]["exact"] == 100.0
    assert found["evaluated_on"]["devices"] == ["simulated GPU (14 SMs, 3 memory channels)"]
    relative = document_of(assay("evaluate", selection, simulated, other, "--json"))
    assert relative["speedup_predicted"] == relative["speedup_true"] == pytest.approx(1 / 3)


def test_a_selection_on_a_log_is_carried_by_its_active_cycles(assay: Assay, tmp_path: Path) -> None:
    def run(name: str, cycles: Sequence[int], **changed: str) -> Path:
        launches = [
            Launch(traced_id=number, cycles=200 + active, instructions=1000, counted=counted(1))
            for number, active in enumerate(cycles, start=1)
        ]
        (tmp_path / name).write_text(output(launches, **changed))
        return tmp_path / name

    here = run("here.out", [100, 300, 200])
    there = run("there.out", [500, 900, 1000], gpgpu_n_clusters="7")
    selection = saved(assay, "pks", here, *PUBLISHED_PKS_OPTIONS, "--param", "k=1")
    document = json.loads(selection.read_text())
    (group,) = document["groups"]
    assert [entry["launch"] for entry in group["representatives"]] == [0]
    assert [entry["light_time_weight"] for entry in group["representatives"]] == [6.0]
    found = document_of(assay("evaluate", selection, there, "--json"))
    assert (found["cost"]["projected"], found["cost"]["total"]) == (6.0 * 500, 2400)
    by_launches = document_of(assay("evaluate", selection, there, "--weights", "launches", "--json"))
    assert by_launches["cost"]["projected"] == 3.0 * 500
    here.write_text(here.read_text().replace("-gpgpu_kernel_launch_latency", "-gpgpu_kernel_launch_latencz"))
    without = json.loads(saved(assay, "random", here, "--param", "launches=2").read_text())
    assert without["cost"]["quantity"] == "cycles_simulated"
    assert [e["light_time_weight"] for e in without["groups"][0]["representatives"]] == [None] * 2


def test_methods_are_compared_on_a_log(assay: Assay, simulated: Path) -> None:
    found = document_of(assay("compare", simulated, "--json"))
    methods = {entry["method"]: entry for entry in found["methods"]}
    for name in ("pks", "sieve", "stem", "stratified", "random"):
        assert methods[name]["status"] == "ok", name
        assert methods[name]["cost"]["quantity"] == "cycles_simulated_active"
    assert found["profile"]["origin"] == "simulated"
    assert methods["pks"]["parameters"]["features"] == "simulated"


def test_counters_of_silicon_are_not_to_be_had_of_a_simulator(assay: Assay, simulated: Path) -> None:
    ended = assay("select", "pks", simulated, "--param", "features=table2")
    assert ended.code == 3
    assert "'global_load_sectors'" in ended.stderr and "ncu" not in ended.stderr
    assert "assay docs simulator-files" in ended.stderr
    ended = assay("metrics", "pks", "--param", "features=simulated")
    assert ended.code == 3 and "only simulators count it" in ended.stderr


def test_a_selection_on_silicon_is_evaluated_on_a_simulator_and_back(
    assay: Assay, page: Path, simulated: Path
) -> None:
    on_silicon = saved(assay, "pks", page, "--param", "k=3")
    found = document_of(assay("evaluate", on_silicon, simulated, "--json"))
    assert (found["selected_on"]["origin"], found["evaluated_on"]["origin"]) == ("measured", "simulated")
    assert (found["cost"]["quantity"], found["cost"]["total"]) == ("cycles_simulated_active", TOTAL_ACTIVE)
    assert found["error_percent"] == 0.0
    note = make_note("scored_in_another_cost", quantity="cycles_simulated_active", made_in="cycles_gpc_avg")
    assert note.to_dict() in found["notes"]
    assert "simulated: a cycle-level simulator" in assay("evaluate", on_silicon, simulated).stdout
    on_simulator = saved(assay, "pks", simulated, "--param", "k=3")
    back = document_of(assay("evaluate", on_simulator, page, "--json"))
    assert (back["selected_on"]["origin"], back["evaluated_on"]["origin"]) == ("simulated", "measured")
    assert (back["cost"]["quantity"], back["cost"]["total"]) == ("cycles_gpc_avg", TOTAL_CYCLES)
    assert back["error_percent"] == 0.0


def test_mangled_names_are_refused_with_the_way_to_demangle_them(
    assay: Assay, page: Path, tmp_path: Path
) -> None:
    mangled = log(tmp_path / "mangled.out", MANGLED)
    text = refused(assay("evaluate", saved(assay, "pks", page, "--param", "k=3"), mangled))
    assert "its kernel names are mangled" in text and "c++filt" in text
    text = refused(assay("evaluate", saved(assay, "pks", mangled, "--param", "k=3"), page))
    assert "the kernel names of the selection are mangled" in text and "c++filt" in text
    other = log(tmp_path / "other.out", ("_Z1aPf", "_Z1bPf", "_Z1cPf"))
    assert "c++filt" not in refused(assay("evaluate", saved(assay, "pks", mangled), other))


def test_silicon_and_a_simulator_are_never_one_profile(
    assay: Assay, page: Path, simulated: Path, tmp_path: Path
) -> None:
    trace = hand_made.write_kineto(tmp_path / "light.json", LAUNCHES)
    text = refused(assay("select", "random", simulated, "--light", trace))
    assert "the detailed run is simulated and the light run is measured" in text
    ended = assay("select", "random", page, simulated)
    assert ended.code == 3 and "its origin (simulated) differs from that of" in ended.stderr
    ended = assay("inspect", simulated, "--synthetic")
    assert ended.code != 0 and "neither measured nor synthetic" in ended.stderr
    made = saved(assay, "random", page, "--synthetic")
    assert "is of synthetic data and this recording is simulated" in refused(
        assay("evaluate", made, simulated)
    )


def test_campaigns_take_no_run_of_a_simulator(assay: Assay, simulated: Path) -> None:
    ended = assay("import", simulated, "--workload", "w", "--device", "V100")
    assert ended.code == 7 and "campaigns hold runs on GPUs" in ended.stderr


def test_two_levels_on_one_simulator_take_its_active_cycles_for_light_time(
    assay: Assay, shared_data: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.out"
    whole.write_bytes(gzip.decompress((shared_data / "accel_sim_more/infer.SM7_QV100.out.gz").read_bytes()))
    lines = whole.read_text().splitlines(keepends=True)
    begins = [number for number, line in enumerate(lines) if line.startswith("kernel_name = ")]
    cut = tmp_path / "cut.out"
    cut.write_text("".join(lines[: begins[60]]))
    found = document_of(assay("select", "pks", cut, "--light", whole, "--json"))
    assert found["profile"]["launches"] == 139
    assert 50 <= found["two_level"]["window"]["launches"] <= 61
    assert found["cost"]["quantity"] == "cycles_simulated_active"
    assert found["weights"] == {"here": "launches", "elsewhere": "light_time"}
    selection = saved(assay, "pks", cut, "--light", str(whole))
    there = shared_data / "accel_sim_more" / "infer.SM75_RTX2060.out.gz"
    carried = document_of(assay("evaluate", selection, there, "--json"))
    assert carried["error_percent"] < 10
    measured = shared_data / "nsys" / "h100_2gpu_window_4010_kernels.sqlite.gz"
    assert assay("select", "pks", measured, "--light", whole).code == 3
