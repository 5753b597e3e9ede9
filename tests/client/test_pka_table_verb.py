"""``assay pka-table``: rows of selections and simulations, tables of suites, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.errors import InputError, ParameterError, RefusedError
from tests.support.client import hand_made

Assay = Callable[..., Any]
DOCS = Path(__file__).parents[2] / "docs"
LAUNCHES = 6
ROW = {
    "suite": "a", "application": "x", "simulator_error_percent": 20.0, "pks_error_percent": 20.0,
    "pka_error_percent": 30.0, "pks_hours": 1.0, "pks_speedup": 2.5, "pka_hours": 0.5, "pka_speedup": 5.0,
    "pka_speedup_over": "full", "dram_full_percent": None, "dram_pka_percent": None,
}  # fmt: skip


def write_log(path: Path, ids: Sequence[int], *, cycles: int = 1000) -> Path:
    """A simulation of launches by their 1-based ids, each a second of the simulator's time."""
    text = "-gpgpu_n_clusters 2 # x\n-gpgpu_n_cores_per_cluster 1 # x\n-gpgpu_kernel_launch_latency 0 # x\n"
    for uid, traced_id in enumerate(ids, 1):
        text += (
            f"-kernel name = k\n-kernel id = {traced_id}\n-grid dim = (8,1,1)\n-block dim = (32,1,1)\n"
            f"launching kernel name: k uid: {uid}\nkernel_name = k \nkernel_launch_uid = {uid} \n"
            f"gpu_sim_cycle = {cycles}\ngpu_sim_insn = 100\ngpu_tot_sim_insn = {100 * uid}\n"
            f"gpu_tot_issued_cta = {8 * uid}\n"
            f"gpgpu_simulation_time = 0 days, 0 hrs, 0 min, {uid} sec ({uid} sec)\n"
        )
    path.write_text(text + "GPGPU-Sim: *** exit detected ***\n")
    return path


@pytest.fixture
def selection(assay: Assay, tmp_path: Path) -> Path:
    page = hand_made.write_raw_page(tmp_path / "page.csv", LAUNCHES)
    path = tmp_path / "bfs.json"
    assert assay("select", "pks", page, "-o", path).code == 0
    return path


def chosen(selection: Path) -> dict[int, float]:
    groups = json.loads(selection.read_text())["groups"]
    return {each["sim_id"]: each["weight"] for group in groups for each in group["representatives"]}


def row_of(ended: Any) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    (row,) = json.loads(ended.stdout)["rows"]
    return dict(row)


def test_a_row_of_a_full_simulation(assay: Assay, selection: Path, tmp_path: Path) -> None:
    silicon = json.loads(selection.read_text())["cost"]["total"]
    log = write_log(tmp_path / "out", range(1, LAUNCHES + 1))
    row = row_of(assay("pka-table", "row", selection, log, "--suite", "rodinia", "--json"))
    projected = 1000 * sum(chosen(selection).values())
    assert (row["suite"], row["application"], row["pka_speedup_over"]) == ("rodinia", "bfs", "full")
    assert row["simulator_error_percent"] == pytest.approx(100 * abs(silicon - 6000) / silicon)
    assert row["pks_error_percent"] == pytest.approx(100 * abs(silicon - projected) / silicon)
    assert row["pks_speedup"] == pytest.approx(LAUNCHES / len(chosen(selection)))
    # A thousand cycles in a second, as the log says.
    assert row["pks_hours"] == pytest.approx(len(chosen(selection)) / 3600)
    given = row_of(assay("pka-table", "row", selection, log, "--cycles-per-second", "10", "--json"))
    assert given["pks_hours"] == pytest.approx(100 * len(chosen(selection)) / 3600)


def test_only_the_selected_launches_were_simulated_each_in_a_log_of_its_own(
    assay: Assay, selection: Path, tmp_path: Path
) -> None:
    logs = [write_log(tmp_path / f"out{each}", [each]) for each in chosen(selection)]
    ended = assay("pka-table", "row", selection, *logs, "--json")
    row = row_of(ended)
    found = row["simulator_error_percent"], row["pks_speedup"], row["pka_speedup_over"]
    assert found == (None, None, "pks")
    notes = json.loads(ended.stdout)["notes"]
    assert any("the speedup of PKA is over PKS" in note for note in notes)
    assert any("there is no interval log" in note for note in notes)
    shown = assay("pka-table", "row", selection, *logs).stdout
    assert "1.0 over PKS" in shown and "PKA, Table 4" in shown and " * " in shown
    assert "\n*     not known" in shown


def test_silicon_is_another_recording_of_the_same_launches(
    assay: Assay, selection: Path, tmp_path: Path
) -> None:
    log = write_log(tmp_path / "out", range(1, LAUNCHES + 1))
    page = hand_made.write_raw_page(tmp_path / "other.csv", LAUNCHES)
    row = row_of(assay("pka-table", "row", selection, log, "--silicon", page, "--json"))
    assert row["simulator_error_percent"] is not None
    fewer = hand_made.write_raw_page(tmp_path / "fewer.csv", LAUNCHES - 1)
    ended = assay("pka-table", "row", selection, log, "--silicon", fewer)
    assert (ended.code, ended.stdout) == (RefusedError.exit_code, "")


def test_a_simulator_s_run_is_no_silicon(assay: Assay, tmp_path: Path) -> None:
    log = write_log(tmp_path / "out", range(1, LAUNCHES + 1))
    selection = tmp_path / "simulated.json"
    assert assay("select", "random", log, "--param", "launches=2", "-o", selection).code == 0
    document = json.loads(assay("pka-table", "row", selection, log, "--json").stdout)
    assert document["rows"][0]["simulator_error_percent"] is None
    assert "made on a simulator's run" in document["notes"][0]
    ended = assay("pka-table", "row", selection, log, "--silicon", log)
    assert ended.code == RefusedError.exit_code and "it is a simulator's run" in ended.stderr


def test_suites_put_rows_together_and_read_their_own_tables_again(assay: Assay, tmp_path: Path) -> None:
    for name, changed in {
        "x": {}, "y": {"application": "y", "pks_speedup": 10.0}, "z": {"suite": "b", "application": "z"}
    }.items():  # fmt: skip
        document = {"rows": [{**ROW, **changed}], "notes": ["n"], "synthetic": name == "z"}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    table = tmp_path / "table.json"
    ended = assay("pka-table", "suites", tmp_path / "x.json", tmp_path / "y.json", "-o", table, "--json")
    assert json.loads(ended.stdout) == json.loads(table.read_text())
    ended = assay("pka-table", "suites", table, tmp_path / "z.json", "--json")
    document = json.loads(ended.stdout)
    assert [(row["suite"], row["application"]) for row in document["rows"]] == [
        ("a", "x"), ("a", "y"), ("a", "mean"), ("b", "z"), ("b", "mean"),
    ]  # fmt: skip
    assert document["rows"][2]["pks_speedup"] == pytest.approx(5)
    assert document["rows"][2]["known"]["dram_full_percent"] == 0
    assert document["synthetic"]
    shown = assay("pka-table", "suites", table, tmp_path / "z.json").stdout
    assert "mean of 2" in shown and "no silicon produced these data" in shown


def test_what_pka_table_cannot_use_is_said(assay: Assay, selection: Path, tmp_path: Path) -> None:
    log = write_log(tmp_path / "out", [1])
    twice = tmp_path / "x.json"
    twice.write_text(json.dumps({"rows": [ROW, ROW], "notes": []}))
    wrong = tmp_path / "w.json"
    wrong.write_text(json.dumps({"rows": [{**ROW, "pks_hours": "long"}], "notes": []}))
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({**json.loads(selection.read_text()), "profile": {"launches": -1}}))
    sampled, other = tmp_path / "sampled", tmp_path / "other"
    sampled.write_text("globalcyclecount: 500\n")
    other.write_text("neither\n")
    for arguments, kind, text in [
        (("row", selection, log, *2 * ("--intervals", sampled)), ParameterError, "2 interval logs"),
        (("row", bare, log), InputError, "field 'profile."),
        (("row", selection, selection), InputError, "it is a selection"),
        (("suites", twice), RefusedError, "given twice in suite 'a'"),
        (("suites", wrong), InputError, "rows.0.pks_hours"),
        (("suites", log), InputError, "it is the standard output of Accel-Sim"),
        (("suites", other), InputError, "it is not what this verb reads"),
        (("suites", tmp_path / "none"), InputError, "there is no such file"),
    ]:
        ended = assay("pka-table", *arguments)
        assert (ended.code, ended.stdout) == (kind.exit_code, ""), arguments
        assert text in ended.stderr


def test_every_key_of_the_table_is_documented(assay: Assay, selection: Path, tmp_path: Path) -> None:
    text = (DOCS / "projection-format.md").read_text()
    log = write_log(tmp_path / "out", [1])
    document = json.loads(assay("pka-table", "row", selection, log, "--json").stdout)
    keys = {*document, *document["rows"][0]}
    assert {key for key in keys if f"`{key}`" not in text} == set()
