"""``inspect``, ``select`` and ``evaluate``: exact documents from recordings made by hand, and bad input."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client import api
from assay_sampling import errors
from assay_sampling.gathering import from_batches, spilling
from tests.support.client import hand_made
from tests.support.sampling.published import PUBLISHED_PKS_OPTIONS

Assay = Callable[..., Any]
LAUNCHES = 40
TOTAL_CYCLES = sum(hand_made.CYCLES[kind] for kind in hand_made.kinds(LAUNCHES))
TOTAL_NS = sum(hand_made.NANOSECONDS[kind] for kind in hand_made.kinds(LAUNCHES))


@pytest.fixture
def raw_page(tmp_path: Path) -> Path:
    return hand_made.write_raw_page(tmp_path / "detailed.txt", LAUNCHES)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand_made.write_kineto(tmp_path / "light.txt", LAUNCHES)


def document_of(ended: Any) -> Any:
    assert ended.stderr == ""
    assert ended.code == 0
    return json.loads(ended.stdout)


def test_inspect_counts_what_the_files_hold(assay: Assay, raw_page: Path, trace: Path) -> None:
    detailed, light = document_of(assay("inspect", raw_page, trace, "--json"))["files"]
    assert detailed["path"] == str(raw_page)
    assert detailed["format"] == "ncu-raw-csv"
    assert (detailed["launches"], detailed["kernels"], detailed["levels"]) == (40, 3, ["detailed"])
    assert {"instructions", "cycles_gpc_avg"} <= set(detailed["counters"])
    assert light["format"] == "kineto-json"
    assert (light["launches"], light["kernels"], light["levels"]) == (40, 3, ["light"])
    assert light["devices"] == ["Tesla V100-SXM2-16GB"]
    assert light["counters"] == []


@pytest.mark.parametrize(
    ("goal", "parameter"),
    [
        (("pks", "-k", 3), ("k", 3)),
        (("systematic", "-k", 7), ("launches", 7)),
        (("pks", "--target", 2.5), ("target_error_percent", 2.5)),
        (("stem", "--target", 4), ("epsilon_percent", 4.0)),
    ],
)
def test_goals_are_the_methods_own_parameters(
    assay: Assay, raw_page: Path, goal: tuple[Any, ...], parameter: tuple[str, Any]
) -> None:
    method, *options = goal
    name, value = parameter
    found = document_of(assay("select", method, raw_page, *options, "--json"))
    assert found["parameters"][name] == value
    assert found == document_of(assay("select", method, raw_page, "-p", f"{name}={value}", "--json"))


def test_inspect_for_people_has_a_block_a_file(assay: Assay, raw_page: Path, trace: Path) -> None:
    shown = assay("inspect", raw_page, trace).stdout
    for text in ("ncu-raw-csv", "kineto-json", "Tesla V100-SXM2-16GB", "instructions"):
        assert text in shown


def test_select_pks_has_the_documents_keys_and_exact_numbers(assay: Assay, raw_page: Path) -> None:
    document = document_of(
        assay("select", "pks", raw_page, *PUBLISHED_PKS_OPTIONS, "--param", "k=3", "--json")
    )
    assert {
        "version", "method", "parameters", "seed", "profile", "groups", "cost", "error_percent",
        "signed_error_percent", "group_error_percent", "speedup", "sweep", "pca_components",
    } <= set(document)  # fmt: skip
    assert document["method"] == "pks"
    assert document["parameters"]["k"] == 3
    assert document["profile"]["launches"] == 40
    assert document["profile"]["kernels"] == 3
    assert document["profile"]["sources"] == [str(raw_page)]
    assert document["profile"]["synthetic"] is False
    counts = [hand_made.kinds(LAUNCHES).count(kind) for kind in range(3)]
    assert sorted(group["launches"] for group in document["groups"]) == sorted(counts)
    firsts = sorted(g["representatives"][0]["launch"] for g in document["groups"])
    assert firsts == [0, 1, 4]
    for group in document["groups"]:
        (chosen,) = group["representatives"]
        kind = hand_made.kinds(LAUNCHES)[chosen["launch"]]
        assert chosen == {
            "process": 0,
            "launch": chosen["launch"],
            "sim_id": chosen["launch"] + 1,
            "kernel": hand_made.KERNELS[kind],
            "grid": [hand_made.GRIDS[kind], 1, 1],
            "block": [128, 1, 1],
            "weight": float(counts[kind]),
            "draws": None,
            "light_time_weight": None,
            "light_time": None,
        }
    assert document["cost"]["quantity"] == "cycles_gpc_avg"
    assert document["cost"]["unit"] == "cycle"
    assert document["cost"]["total"] == pytest.approx(TOTAL_CYCLES)
    assert document["error_percent"] == pytest.approx(0.0, abs=1e-9)
    assert document["speedup"] == pytest.approx(TOTAL_CYCLES / sum(hand_made.CYCLES))
    shares = [group["instruction_share"] for group in document["groups"]]
    assert sum(shares) == pytest.approx(1.0)


def test_a_selection_is_not_written_into_a_folder_that_is_not_there(
    assay: Assay, raw_page: Path, tmp_path: Path
) -> None:
    target = tmp_path / "mispelt" / "selection.json"
    ended = assay("select", "pks", raw_page, "-o", target)
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"error: {target}: there is no folder {target.parent}; make it: mkdir -p {target.parent}\n"
    )
    assert not target.parent.exists()


def test_select_for_people_has_scores_groups_and_sweep(assay: Assay, raw_page: Path) -> None:
    ended = assay("select", "pks", raw_page, "--all")
    assert (ended.code, ended.stderr) == (0, "")
    for text in ("error", "speedup", "gemm<float>", "Sweep over the number of groups", "cycles_gpc_avg"):
        assert text in ended.stdout, text
    assert "\x1b" not in ended.stdout


def test_a_condition_that_nobody_recorded_is_said_in_words(
    assay: Assay, raw_page: Path, shared_data: Path
) -> None:
    shown = assay("select", "pks", raw_page, "--all").stdout
    assert "cache, clock and SM share not recorded\n" in shown and "cache=?" not in shown
    log = shared_data / "accel_sim" / "reuse.base.out.gz"
    # A simulator has no such condition.
    simulated = assay("select", "pks", log, "--all").stdout.splitlines()
    assert next(line for line in simulated if line.startswith("cost")).endswith("cycles_simulated_active")
    assert any(" 4 launches of 1 kernel on simulated" in line for line in simulated)


@pytest.mark.parametrize(
    ("method", "parameter", "shown"),
    [
        ("sieve", "theta_sweep=true", ["Sweep over theta", "theta  strata", "tier 1", "IPC "]),
        ("tbpoint", "sweep=true", ["Sweep over the distance threshold", "0.01", "sizes of thread blocks"]),
        ("stem", "epsilon_percent=5", ["bound ", "predicted from the spread"]),
    ],
)
def test_select_for_people_has_what_only_the_method_says(
    assay: Assay, raw_page: Path, method: str, parameter: str, shown: list[str]
) -> None:
    ended = assay("select", method, raw_page, "--all", "-p", parameter)
    assert (ended.code, ended.stderr) == (0, "")
    for text in shown:
        assert text in ended.stdout


def test_a_light_file_alone_is_a_light_profile(assay: Assay, trace: Path) -> None:
    document = document_of(assay("select", "systematic", trace, "--param", "launches=10", "--json"))
    assert document["cost"]["quantity"] == "duration_ns"
    assert document["cost"]["total"] == TOTAL_NS


def test_pks_without_counters_is_refused_in_the_words_of_the_report(assay: Assay, trace: Path) -> None:
    ended = assay("select", "pks", trace)
    assert (ended.code, ended.stdout) == (7, "")
    assert "PKS not applicable: no counters" in ended.stderr


@pytest.mark.parametrize("how", ["option", "argument"])
def test_two_levels_are_told_apart_by_what_the_files_hold(
    assay: Assay, tmp_path: Path, trace: Path, how: str
) -> None:
    window = hand_made.write_raw_page(tmp_path / "window.csv", 25)
    files = [trace, window] if how == "argument" else [window, "--light", trace]
    document = document_of(assay("select", "pks", *files, "--json"))
    assert document["profile"]["launches"] == 40
    assert document["cost"]["quantity"] == "duration_ns"
    assert document["cost"]["total"] == TOTAL_NS
    assert document["two_level"]
    shown = assay("select", "pks", *files, "--all")
    assert shown.code == 0
    assert "Two levels" in shown.stdout


def test_a_detailed_recording_is_not_taken_for_a_light_one(assay: Assay, raw_page: Path) -> None:
    ended = assay("select", "pks", raw_page, "--light", raw_page)
    assert (ended.code, ended.stdout) == (2, "")
    assert "--light" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["no-such-method"], "pks"),
        (["pks", "--param", "no_such_parameter=1"], "k_max"),
        (["pks", "--param", "k=0"], "k"),
        (["pks", "--param", "k=three"], "k"),
        (["pks", "--param", "features=nope"], "table2"),
        (["pks", "--memory-limit", "much"], "memory-limit"),
        (["pks", "-o", "selection.yaml"], ".json"),
    ],
)
def test_wrong_parameters_end_with_2_and_say_what_exists(
    assay: Assay, raw_page: Path, arguments: list[str], text: str
) -> None:
    ended = assay("select", arguments[0], raw_page, *arguments[1:])
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    assert text in ended.stderr


def test_the_same_seed_gives_the_same_bytes(assay: Assay, raw_page: Path) -> None:
    arguments = ("select", "random", raw_page, "--param", "launches=7", "--json")
    first = assay(*arguments, "--seed", 5).stdout
    assert first == assay(*arguments, "--seed", 5).stdout
    assert json.loads(first)["seed"] == 5
    assert first != assay(*arguments, "--seed", 6).stdout


def test_output_as_json_is_what_standard_output_would_have(
    assay: Assay, raw_page: Path, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    ended = assay("select", "pks", raw_page, "-o", path, "--json")
    assert path.read_text() == ended.stdout


def test_output_as_csv_has_a_line_a_representative(assay: Assay, raw_page: Path, tmp_path: Path) -> None:
    path = tmp_path / "selection.csv"
    ended = assay("select", "pks", raw_page, *PUBLISHED_PKS_OPTIONS, "--param", "k=3", "-o", path)
    assert f"written to {path}" in ended.stdout
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(rows) == 3
    assert sorted(int(row["sim_id"]) for row in rows) == [1, 2, 5]


def test_synthetic_is_said_everywhere(assay: Assay, raw_page: Path) -> None:
    document = document_of(assay("select", "pks", raw_page, "--synthetic", "--json"))
    assert document["profile"]["synthetic"] is True
    assert "synthetic" in assay("select", "pks", raw_page, "--synthetic").stdout
    assert "synthetic" in assay("inspect", raw_page, "--synthetic").stdout


def test_a_memory_limit_refuses_before_it_is_crossed(assay: Assay, raw_page: Path) -> None:
    ended = assay("select", "pks", raw_page, "--memory-limit", "1000")
    assert (ended.code, ended.stdout) == (7, "")
    assert "memory" in ended.stderr


def test_a_memory_limit_is_of_all_files_together(assay: Assay, raw_page: Path, tmp_path: Path) -> None:
    second = hand_made.write_raw_page(tmp_path / "second.csv", LAUNCHES)
    enough_for_one = ["--memory-limit", "24000"]
    assert assay("select", "pks", raw_page, *enough_for_one).code == 0
    ended = assay("select", "pks", raw_page, second, *enough_for_one)
    assert (ended.code, ended.stdout) == (7, "")
    assert f"{second}: with the files before it" in ended.stderr
    assert "24,000 bytes" in ended.stderr


@pytest.mark.parametrize(
    ("words", "on_disk"), [(["stem"], True), (["stem", "-p", "least_samples=5"], False), (["pks"], False)]
)
def test_launches_beyond_two_gib_go_to_disk_where_a_method_gives_the_same_there(
    assay: Assay, raw_page: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], on_disk: bool
) -> None:
    chosen = ["select", words[0], raw_page, *words[1:], "--json"]
    wanted = document_of(assay(*chosen))
    monkeypatch.setattr(spilling, "SPILL_BEYOND_BYTES", 1000)
    spilled = []
    plain = from_batches.gather_on_disk
    monkeypatch.setattr(
        from_batches, "gather_on_disk", lambda *given, **more: spilled.append(1) or plain(*given, **more)
    )
    assert document_of(assay(*chosen)) == wanted
    assert bool(spilled) == on_disk


def test_ranks_are_one_profile_with_a_process_each(assay: Assay, raw_page: Path, tmp_path: Path) -> None:
    second = hand_made.write_raw_page(tmp_path / "second.csv", 10)
    chosen = ["select", "systematic", raw_page, second, "--ranks", "-p", "launches=50", "--json"]
    document = document_of(assay(*chosen))
    assert document["profile"]["launches"] == 50
    assert document["profile"]["sources"] == [str(raw_page), str(second)]
    chosen = [r for group in document["groups"] for r in group["representatives"]]
    assert [(r["process"], r["launch"]) for r in chosen] == [(0, i) for i in range(40)] + [
        (1, i) for i in range(10)
    ]


def test_evaluate_on_the_same_recording_gives_the_same_scores(
    assay: Assay, raw_page: Path, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    selected = document_of(assay("select", "pks", raw_page, "--param", "k=2", "-o", path, "--json"))
    evaluated = document_of(assay("evaluate", path, raw_page, "--json"))
    for key in (
        "method", "parameters", "seed", "cost", "error_percent", "signed_error_percent",
        "group_error_percent", "speedup", "weighted_cov_percent",
    ):  # fmt: skip
        assert evaluated[key] == selected[key], key
    assert evaluated["notes"] == []
    assert evaluated["selected_on"] == selected["profile"]
    assert evaluated["evaluated_on"]["launches"] == 40
    assert evaluated["match"] == {"exact": 100.0, "name_block": 100.0, "position": 100.0}


def test_evaluate_on_a_slower_device_scores_the_weights_as_they_are(
    assay: Assay, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    selected = document_of(
        assay("select", "systematic", trace, "--param", "launches=10", "-o", path, "--json")
    )
    slower = hand_made.write_kineto(tmp_path / "slower.json", LAUNCHES, slower=3.0)
    evaluated = document_of(assay("evaluate", path, slower, "--json"))
    assert evaluated["cost"]["total"] == 3 * TOTAL_NS
    assert evaluated["error_percent"] == pytest.approx(selected["error_percent"])
    assert evaluated["speedup"] == pytest.approx(selected["speedup"])
    shown = assay("evaluate", path, slower).stdout
    assert "systematic" in shown
    assert "speedup" in shown


def test_evaluate_on_another_gpu_takes_light_time_and_shows_both_weights(
    assay: Assay, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    selected = document_of(assay("select", "systematic", trace, "-p", "launches=10", "-o", path, "--json"))
    assert selected["weights"] == {"here": "launches", "elsewhere": "light_time"}
    there = hand_made.write_kineto(tmp_path / "there.json", LAUNCHES, slower=3.0, gpu=("Tesla T4", 7, 5, 40))
    found = document_of(assay("evaluate", path, there, "--json"))
    # Every launch takes three times as long, so the ratio is exact and the misfit of the weights is not.
    assert (found["weights"], found["error_percent"]) == ("light_time", pytest.approx(0, abs=1e-9))
    assert found["by_weights"]["launches"]["error_percent"] == pytest.approx(selected["error_percent"])
    by_launches = document_of(assay("evaluate", path, there, "--weights", "launches", "--json"))
    assert by_launches["weights"] == "launches"
    assert by_launches["error_percent"] == pytest.approx(selected["error_percent"])
    assert "by light time (used)" in " ".join(assay("evaluate", path, there).stdout.split())
    refused = assay("evaluate", path, there, "--weights", "instructions")
    assert refused.code == 2
    assert "no weights by instructions" in refused.stderr
    asked = document_of(assay("select", "systematic", trace, "-p", "weights=launches", "-o", path, "--json"))
    assert asked["weights"]["elsewhere"] == "launches"
    assert document_of(assay("evaluate", path, there, "--json"))["weights"] == "launches"


def test_evaluate_refuses_other_launches_with_the_first_differences(
    assay: Assay, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    assert assay("select", "systematic", trace, "-o", path).code == 0
    other = hand_made.write_kineto(tmp_path / "other.json", order=[0] * LAUNCHES)
    ended = assay("evaluate", path, other)
    assert (ended.code, ended.stdout) == (7, "")
    assert ended.stderr.count("\n") == 1


def test_evaluate_on_two_recordings_scores_the_speedup_between_them(
    assay: Assay, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    document_of(assay("select", "systematic", trace, "-p", "launches=10", "-o", path, "--json"))
    slower = hand_made.write_kineto(tmp_path / "slower.json", LAUNCHES, slower=3.0)
    found = document_of(assay("evaluate", path, slower, trace, "--json"))
    assert (found["quantity"], found["unit"], found["notes"]) == ("duration_ns", "ns", [])
    assert found["speedup_true"] == pytest.approx(3.0)
    assert found["speedup_predicted"] == pytest.approx(3.0)
    assert found["speedup_error_percent"] == pytest.approx(0, abs=1e-9)
    assert found["first"]["cost"]["total"] == 3 * TOTAL_NS
    assert found["second"]["cost"]["total"] == TOTAL_NS
    assert api.evaluate_relative(path, slower, trace) == found
    shown = assay("evaluate", path, slower, trace).stdout
    assert "3.00x (first / second)" in shown
    other = hand_made.write_kineto(tmp_path / "other.json", order=[0] * LAUNCHES)
    ended = assay("evaluate", path, trace, other)
    assert (ended.code, ended.stdout) == (7, "")


def test_evaluate_says_when_another_cost_is_scored_than_was_selected_in(
    assay: Assay, raw_page: Path, trace: Path, tmp_path: Path
) -> None:
    path = tmp_path / "selection.json"
    document_of(assay("select", "pks", raw_page, "-p", "k=3", "-o", path, "--json"))
    found = document_of(assay("evaluate", path, trace, "--json"))
    (note,) = found["notes"]
    assert (note["code"], note["quantity"], note["made_in"]) == (
        "scored_in_another_cost", "duration_ns", "cycles_gpc_avg",
    )  # fmt: skip
    assert note["text"] in assay("evaluate", path, trace).stdout
    page = ("gpc__cycles_elapsed.avg", f"{hand_made.CYCLES[0] / 2:g}")
    faster = hand_made.write_raw_page(tmp_path / "faster.csv", LAUNCHES, replace=(0, *page))
    relative = document_of(assay("evaluate", path, raw_page, faster, "--json"))
    assert relative["speedup_true"] == TOTAL_CYCLES / (TOTAL_CYCLES - hand_made.CYCLES[0] / 2)
    assert relative["notes"][0]["code"] == "cycles_of_two_clocks"


def test_select_shows_intervals_and_what_chance_does(assay: Assay, raw_page: Path) -> None:
    shown = assay("select", "random", raw_page, "-p", "launches=8", "-p", "repetitions=20", "--all").stdout
    assert "held: the true total is in" in shown or "missed: the true total is outside" in shown
    assert "20 further samples: mean error" in shown
    fixed = assay("select", "pks", raw_page, "-p", "seeds=2", "--all").stdout
    assert "none: the representatives are chosen by a fixed rule" in fixed
    assert "Other seeds" in fixed
    blind = assay("select", "systematic", raw_page, "-p", "launches=4", "--all").stdout
    assert "the workload repeats every 10 launches" in blind


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"groups": []}', '{"groups": [{"representatives": [{}]}]}']
)
def test_evaluate_of_what_is_no_selection_is_an_input_error(
    assay: Assay, trace: Path, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "selection.json"
    path.write_text(content)
    ended = assay("evaluate", path, trace)
    assert (ended.code, ended.stdout) == (3, "")
    assert str(path) in ended.stderr


def cut_sqlite(directory: Path) -> Path:
    """The first half of a database that was whole."""
    whole = directory / "whole.sqlite"
    with sqlite3.connect(whole) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        database.executemany(
            "INSERT INTO StringIds VALUES (?, ?)", [(i, f"void kernel_{i}(float*)" * 20) for i in range(2000)]
        )
    database.close()
    path = directory / "cut.sqlite"
    path.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return path


def cut_kineto(directory: Path) -> Path:
    """A compressed trace whose end is missing."""
    whole = gzip.compress(hand_made.write_kineto(directory / "whole.json", 2000).read_bytes())
    path = directory / "cut.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    return path


BAD_INPUTS: dict[str, Callable[[Path], Path]] = {
    "truncated SQLite": cut_sqlite,
    "cut-off JSON.gz": cut_kineto,
    "n/a in a used counter": lambda directory: hand_made.write_raw_page(
        directory / "na.csv", replace=(12, "smsp__inst_executed.sum", "n/a")
    ),
    "NaN in a used counter": lambda directory: hand_made.write_raw_page(
        directory / "nan.csv", replace=(12, "smsp__inst_executed.sum", "nan")
    ),
    "text in a used counter": lambda directory: hand_made.write_raw_page(
        directory / "text.csv", replace=(12, "smsp__inst_executed.sum", "many")
    ),
}


# A process takes a second to start, and what it says does not depend on the kind of bad input.
BY_PROCESS = {"truncated SQLite", "NaN in a used counter"}


@pytest.mark.processes
@pytest.mark.parametrize("name", BAD_INPUTS)
@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
def test_bad_input_is_one_paragraph_with_cause_and_remedy(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, as_json: bool
) -> None:
    path = BAD_INPUTS[name](tmp_path)
    run: Assay = request.getfixturevalue("assay_process" if name in BY_PROCESS else "assay")
    ended = run("select", "pks", path, *(["--json"] if as_json else []))
    assert (ended.code, ended.stdout) == (3, "")
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert path.name in ended.stderr
    if as_json:
        error = json.loads(ended.stderr)["error"]
        assert error["cause"]
        assert error["remedy"]
        assert error["exit_code"] == 3
    else:
        assert ended.stderr.startswith("error: ")
        assert "; " in ended.stderr


@pytest.mark.processes
@pytest.mark.parametrize("name", ["truncated SQLite", "cut-off JSON.gz"])
def test_bad_input_ends_inspect_too(assay_process: Assay, tmp_path: Path, name: str) -> None:
    path = BAD_INPUTS[name](tmp_path)
    ended = assay_process("inspect", path)
    assert (ended.code, ended.stdout) == (3, "")
    assert path.name in ended.stderr


def test_a_counter_that_was_not_measured_is_told_with_its_launch(assay: Assay, tmp_path: Path) -> None:
    path = BAD_INPUTS["n/a in a used counter"](tmp_path)
    inspected = document_of(assay("inspect", path, "--json"))["files"][0]
    assert inspected["null_counters"] == {"instructions": 1}
    ended = assay("select", "pks", path)
    assert "instructions" in ended.stderr
    assert "first for launch 12" in ended.stderr


def test_the_real_truncated_export(assay: Assay, shared_data: Path, tmp_path: Path) -> None:
    whole = (shared_data / "nsys" / "a100_nerf_1106_kernels.sqlite").read_bytes()
    path = tmp_path / "cut.sqlite"
    for share in (0.1, 0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * share)])
        ended = assay("inspect", path)
        assert (ended.code, ended.stdout) == (3, ""), share


REAL = {
    "nsys/a100_nerf_1106_kernels.sqlite": (1106, 116),
    "kineto/a100_alexnet_79_kernels.json.gz": (79, None),
    "ncu/edge_launch_skip.csv": (40, None),
    "ncu/edge_trailing_text.csv": (50, None),
    "ncu/edge_no_units_row.csv": (50, None),
    "ncu/edge_no_units_row_trailing_text.csv": (50, None),
    "ncu/synthetic_v100_1000_modern_layout.csv.gz": (1000, None),
}


def test_inspect_of_real_files_counts_exactly(assay: Assay, shared_data: Path) -> None:
    files = document_of(assay("inspect", *[shared_data / name for name in REAL], "--json"))["files"]
    for found, (name, (launches, kernels)) in zip(files, REAL.items(), strict=True):
        assert found["launches"] == launches, name
        assert kernels is None or found["kernels"] == kernels, name


def test_the_python_api_speaks_the_same_words(raw_page: Path, trace: Path, tmp_path: Path) -> None:
    assert api.inspect(raw_page)["launches"] == 40
    selection = api.select("pks", raw_page, parameters={"k": 3})
    assert selection.evaluation.error_percent == pytest.approx(0.0, abs=1e-9)
    evaluated = api.evaluate(selection, raw_page)
    assert evaluated["speedup"] == pytest.approx(selection.evaluation.speedup)
    assert api.evaluate(selection.document(labels=True).to_dict(), raw_page) == evaluated
    without = api.evaluate(selection.document().to_dict(), raw_page)
    assert without["group_error_percent"] is None
    assert [note["code"] for note in without["notes"]] == ["saved_without_labels"]
    window = hand_made.write_raw_page(tmp_path / "window.csv", 25)
    two_level = api.select("pks", window, light=trace)
    assert len(two_level.representatives.row) >= 2
    with pytest.raises(errors.ParameterError):
        api.select("pks", raw_page, parameters={"nope": 1})
