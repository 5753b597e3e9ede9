"""A selection by operation goes on to work: hand-over, simulators, explanations, figures, tables."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import assay as assay_package
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import CounterColumn, TableMetadata
from assay_sampling.running.identity import Device
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import Listed, write_listed
from tests.support.sampling.made_operations import Call, made_calls
from tests.support.sampling.stand_in_simulator import CLUSTERS, cycles_of, write_stand_in

Assay = Callable[..., Any]
CYCLES = CounterColumn("cycles_gpc_avg", "cycle", "gpc__cycles_elapsed.avg", "hardware")
H100, MI300X = (Device(0, name) for name in ("H100", "MI300X"))

# Eight calls of two operators, and one operator once: eleven launches there, more elsewhere.
CALLS: list[Call] = [
    ("aten::linear", "[[8,8]]", [10, 20]),
    ("aten::relu", "[[8]]", [5]),
    ("aten::linear", "[[8,8]]", [12, 24]),
    ("aten::relu", "[[8]]", [6]),
    ("aten::linear", "[[8,8]]", [11, 22]),
    ("aten::relu", "[[8]]", [7]),
    ("aten::sum", "[[8]]", [9, 1]),
]
THERE: list[Call] = [
    ("aten::linear", "[[8,8]]", [30]),
    ("aten::relu", "[[8]]", [3, 3]),
    ("aten::linear", "[[8,8]]", [36]),
    ("aten::relu", "[[8]]", [4, 4]),
    ("aten::linear", "[[8,8]]", [33]),
    ("aten::relu", "[[8]]", [5, 5]),
    ("aten::sum", "[[8]]", [10]),
]
LAUNCHES_OF = {0: [0, 1], 1: [2], 2: [3, 4], 3: [5], 4: [6, 7], 5: [8], 6: [9, 10]}


def write_calls(path: Path, calls: list[Call], device: Device, prefix: str = "k", **more: Any) -> Path:
    level = "detailed" if more.get("counters") else "light"
    launches = made_calls(calls, prefix=prefix, metadata=TableMetadata(level, devices=(device,)), **more)
    levels = Profile(detailed=launches) if level == "detailed" else Profile(light=launches)
    (written,) = assay_package.Profile(levels).write(path)
    return written


@dataclass(frozen=True)
class Made:
    """A recording, a selection by operation on it, and its document."""

    recording: Path
    selection: Path
    document: dict[str, Any]

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [each for group in self.document["groups"] for each in group["representatives"]]

    @property
    def weight_of(self) -> dict[int, float]:
        """The weight of each launch of a representative, by its ordinal."""
        return {
            one["launch"]: each["weight"] for each in self.entries for one in each["operation"]["launches"]
        }


def document_of(ended: Any) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    return dict(json.loads(ended.stdout))


@pytest.fixture
def made(tmp_path: Path, assay: Assay) -> Made:
    recording = write_calls(tmp_path / "here.parquet", CALLS, H100)
    selection = tmp_path / "s.json"
    ended = assay("select", "stratified", recording, "--unit", "operation", "-p", "launches=3",
                  "-p", "launches_per_group=1", "-o", selection, "--json")  # fmt: skip
    return Made(recording, selection, document_of(ended))


def test_the_profile_of_a_selection_by_operation_counts_launches(made: Made) -> None:
    assert made.document["profile"]["launches"] == made.document["operations"]["launches"] == 11
    assert made.document["operations"]["calls"] == 7
    assert sum(group["launches"] for group in made.document["groups"]) == 7
    assert [[one["launch"] for one in each["operation"]["launches"]] for each in made.entries] == [
        LAUNCHES_OF[each["operation"]["row"]] for each in made.entries
    ]


def test_a_weights_file_scores_as_the_selection_does(made: Made, tmp_path: Path, assay: Assay) -> None:
    there = write_calls(tmp_path / "there.parquet", THERE, MI300X, "other")
    weights = tmp_path / "s.weights.txt"
    written = document_of(assay("export", made.selection, "--to", "weights", "-o", weights, "--json"))
    assert dict(zip(written["launches"], written["weights"], strict=True)) == made.weight_of
    table = [line.split("\t") for line in weights.read_text().splitlines() if not line.startswith("#")][1:]
    assert {int(line[2]): float(line[4]) for line in table} == made.weight_of
    scored, again = (
        document_of(assay("evaluate", selection, there, "--json")) for selection in (made.selection, weights)
    )
    # Weights do not say what to expect on another GPU; the verdict on them says so.
    assert [document.pop("verdict")["level"] for document in (scored, again)] == ["do_not", "do_not"]
    assert again["group_error_percent"] is None and scored["group_error_percent"] is not None
    for name in ("cost", "signed_error_percent", "speedup", "interval"):
        assert again[name] == scored[name], name
    second = tmp_path / "again.txt"
    assert assay("export", weights, "--to", "weights", "-o", second).code == 0
    assert second.read_text() == weights.read_text()


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda text: text.replace('"launches": [0, 1]', '"launches": [0]').replace(
            '"launches": [3, 4]', '"launches": [3]').replace('"launches": [6, 7]', '"launches": [6]'),
         "is of no operation"),
        (lambda text: "".join(f"{line}\n" for line in text.splitlines() if "\t10\t11\t" not in line),
         "does not fit the lines of its launches"),
        (lambda text: text.replace('"operation": [', '"other": ['), "the operations are missing"),
        (lambda text: text.replace('# unit: "operation"', '# unit: "call"'), "unit"),
    ],
)  # fmt: skip
def test_a_weights_file_whose_operations_do_not_fit_is_refused(
    made: Made, tmp_path: Path, assay: Assay, change: Callable[[str], str], cause: str
) -> None:
    weights = tmp_path / "s.weights.txt"
    assert assay("export", made.selection, "--to", "weights", "-o", weights).code == 0
    changed = change(weights.read_text())
    assert changed != weights.read_text()
    weights.write_text(changed)
    ended = assay("evaluate", weights, made.recording)
    assert ended.code != 0
    assert cause in ended.stderr


def test_tracers_and_job_lists_get_every_launch_of_a_representative(
    made: Made, tmp_path: Path, assay: Assay
) -> None:
    out = tmp_path / "nvbit"
    assert assay("export", made.selection, "--to", "nvbit", "-o", out).code == 0
    assert [int(line) for line in (out / "ids.txt").read_text().split()] == sorted(made.weight_of)
    jobs = tmp_path / "jobs.csv"
    ended = assay("select", "stratified", made.recording, "--unit", "operation", "-p", "launches=3",
                  "-p", "launches_per_group=1", "-o", jobs)  # fmt: skip
    assert ended.code == 0
    with jobs.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["launch"]): float(row["weight"]) for row in rows} == made.weight_of


def name_of(launch: int) -> str:
    launches = [(name, place) for name, _, durations in CALLS for place in range(len(durations))]
    name, place = launches[launch]
    return f"k_{name}_{place}"


def simulated_log(path: Path, launches: list[int]) -> Path:
    one = (1, 1, 1)
    path.write_text(
        logs.output(
            [
                logs.Launch(name_of(n), traced_id=n + 1, grid=one, block=one, cycles=1000 + 7 * n)
                for n in launches
            ]
        )
    )
    return path


def test_a_simulator_gets_the_launches_and_their_cycles_come_back_with_the_operations_weight(
    made: Made, tmp_path: Path, assay: Assay
) -> None:
    one = (1, 1, 1)
    traces = write_listed(tmp_path / "traces", [Listed(n + 1, name_of(n), one, one) for n in range(11)])
    out = tmp_path / "handed"
    written = document_of(
        assay("export", made.selection, "--to", "accel-sim", "--traces", traces.parent, "-o", out, "--json")
    )
    assert written["launches"] == sorted(made.weight_of)
    listed = [line for line in (out / "kernelslist.g").read_text().splitlines() if line.startswith("kernel")]
    assert listed == [f"kernel-{n + 1}.traceg" for n in sorted(made.weight_of)]

    full = simulated_log(tmp_path / "full.out", list(range(11)))
    sampled = simulated_log(tmp_path / "sampled.out", sorted(made.weight_of))
    found = document_of(
        assay("import", "accel-sim", sampled, "--full", full, "--selection", made.selection, "--json")
    )
    total = sum(1000 + 7 * n for n in range(11))
    projected = sum(weight * (1000 + 7 * n) for n, weight in made.weight_of.items())
    assert found["all_cycles"]["full_cycles"] == total
    assert found["all_cycles"]["pks_cycles"] == pytest.approx(projected)
    assert found["all_cycles"]["pks_error_of_full_percent"] == pytest.approx(
        100 * abs(total - projected) / total
    )
    assert {each["launch"]: each["operation"] for each in found["representatives"]} == {
        one["launch"]: f"{each['operation']['name']} {each['operation']['shapes']}"
        for each in made.entries
        for one in each["operation"]["launches"]
    }
    row = document_of(assay("pka-table", "row", made.selection, full, "--json"))["rows"][0]
    chosen = sum(1000 + 7 * n for n in made.weight_of)
    assert row["pks_speedup"] == pytest.approx(total / chosen)
    few = simulated_log(tmp_path / "few.out", sorted(made.weight_of)[:-1])
    ended = assay("import", "accel-sim", few, "--selection", made.selection)
    assert "1 of the" in ended.stderr
    assert "selected launches were not simulated" in ended.stderr


def test_launches_of_operations_are_simulated_with_the_operations_weight(
    made: Made, tmp_path: Path, assay: Assay
) -> None:
    one = (1, 1, 1)
    traces = write_listed(tmp_path / "traces", [Listed(n + 1, name_of(n), one, one) for n in range(11)])
    root = write_stand_in(tmp_path / "accel-sim")
    places = ("--traces", traces.parent, "--accel-sim", root, "-o", tmp_path / "sim")
    found = document_of(assay("simulate", made.selection, *places, "--design", "big=BIG", "--json"))
    assert {each["launch"]: each["weight"] for each in found["launches"]} == made.weight_of
    cycles = cycles_of(1, CLUSTERS["BIG"])
    assert found["designs"][0]["cycles"] == pytest.approx(cycles * sum(made.weight_of.values()))


def test_traces_of_other_launches_are_refused(made: Made, tmp_path: Path, assay: Assay) -> None:
    one = (1, 1, 1)
    listed = [Listed(n + 1, name_of(n) if n else "other", one, one) for n in range(11)]
    traces = write_listed(tmp_path / "traces", listed)
    ended = assay("export", made.selection, "--to", "accel-sim", "--traces", traces.parent, "-o", tmp_path)
    assert ended.code != 0
    assert "differ" in ended.stderr


def test_launches_of_an_operation_are_on_the_track_of_its_group(
    made: Made, tmp_path: Path, assay: Assay
) -> None:
    out = tmp_path / "s.trace.json.gz"
    ended = assay("export", made.selection, "--to", "perfetto", "--recording", made.recording, "-o", out)
    assert ended.code == 0, ended.stderr
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert {e["args"]["launch"]: e["args"]["weight"] for e in drawn if "weight" in e["args"]} == (
        made.weight_of
    )
    track = {e["args"]["launch"]: e["tid"] for e in drawn if "weight" not in e["args"]}
    assert len(track) == 11
    assert all(len({track[launch] for launch in launches}) == 1 for launches in LAUNCHES_OF.values())


def test_explain_says_what_each_representative_is_and_whose_a_launch_is(made: Made, assay: Assay) -> None:
    found = document_of(assay("explain", made.selection, "--json"))
    assert found["operations"] == 7
    assert sorted(
        one["launch"] for each in found["representatives"] for one in each["operation"]["launches"]
    ) == sorted(made.weight_of)
    text = assay("explain", made.selection).stdout
    assert "3 operations stand for 7, in 3 groups" in text
    assert "aten::linear [[8,8]] counts 3 times" in text
    for launch in range(11):
        asked = document_of(
            assay("explain", made.selection, made.recording, "--launch", str(launch), "--json")
        )["asked"]
        row = next(row for row, launches in LAUNCHES_OF.items() if launch in launches)
        name, shapes, durations = CALLS[row][:3]
        assert asked["operation"] == f"{name} {shapes}"
        assert asked["cost"] == sum(durations)
        assert asked["chosen"] == (launch in made.weight_of)
    chosen = min(made.weight_of)
    alone = document_of(assay("explain", made.selection, "--launch", str(chosen), "--json"))
    assert alone["asked"]["chosen"]
    other = next(n for n in range(11) if n not in made.weight_of)
    assert "were chosen" in assay("explain", made.selection, "--launch", str(other)).stderr
    assert "has no launch 99" in (assay("explain", made.selection, made.recording, "--launch", "99").stderr)


def test_the_speedup_between_two_gpus_by_operation(made: Made, tmp_path: Path, assay: Assay) -> None:
    there = write_calls(tmp_path / "there.parquet", THERE, MI300X, "other")
    found = document_of(assay("evaluate", made.selection, made.recording, there, "--json"))
    here_cost, there_cost = ([sum(call[2]) for call in calls] for calls in (CALLS, THERE))
    assert found["first"]["unit"] == "operation"
    assert found["speedup_true"] == pytest.approx(sum(here_cost) / sum(there_cost))
    rows = [(each["operation"]["row"], each["weight"]) for each in made.entries]
    first, second = (sum(weight * cost[row] for row, weight in rows) for cost in (here_cost, there_cost))
    assert found["first"]["weights"] == found["second"]["weights"] == "launches"
    assert found["speedup_predicted"] == pytest.approx(first / second)
    assert found["second"]["operations"]["calls_matched"] == 7
    text = assay("evaluate", made.selection, made.recording, there).stdout
    assert "operations matched, second" in text
    assert "how far the group's operations are" in text
    for options in (["--intervals", there], ["--unit", "launch"]):
        assert assay("evaluate", made.selection, there, *options).code != 0


def test_launches_without_a_grid_stay_without_one(tmp_path: Path, assay: Assay) -> None:
    unknown = {f"{what}_{axis}": [None] * 11 for what in ("grid", "block") for axis in "xyz"}
    recording = write_calls(tmp_path / "graphs.parquet", CALLS, MI300X, **unknown)
    saved = tmp_path / "g.json"
    made = document_of(assay("select", "stem", recording, "--unit", "operation", "-o", saved, "--json"))
    shapes = [
        one["grid"] + one["block"]
        for group in made["groups"]
        for each in group["representatives"]
        for one in each["operation"]["launches"]
    ]
    assert {tuple(each) for each in shapes} == {(0,) * 6}
    one = (1, 1, 1)
    traces = write_listed(tmp_path / "traces", [Listed(n + 1, name_of(n), one, one) for n in range(11)])
    out = tmp_path / "handed"
    ended = assay("export", saved, "--to", "accel-sim", "--traces", traces.parent, "-o", out)
    assert ended.code != 0
    assert "is not known" in ended.stderr


def test_the_table_of_a_selection_shows_operations_in_place_of_grids(made: Made, assay: Assay) -> None:
    text = assay("select", "stratified", made.recording, "--unit", "operation", "-p", "launches=3",
                 "-p", "launches_per_group=1", "--all").stdout  # fmt: skip
    assert "3 operations of 7 in 3 groups" in text
    assert "aten::linear [[8,8]]" in text
    assert "grid" not in text
    assert "of operations)" in text


@pytest.mark.parametrize("kind", ["launches", "groups"])
def test_figures_of_a_selection_by_operation_say_operations(
    made: Made, tmp_path: Path, assay: Assay, kind: str
) -> None:
    figure = tmp_path / "figure.json"
    ended = assay("select", "stratified", made.recording, "--unit", "operation", "-p", "launches=3",
                  "-p", "launches_per_group=1", "--plot", figure, "--figure", kind)  # fmt: skip
    assert ended.code == 0, ended.stderr
    text = figure.read_text()
    assert "operation" in text
    assert "launches" not in json.dumps(json.loads(text).get("title", ""))
    there = write_calls(tmp_path / "there.parquet", [*THERE, ("aten::new", "[[1]]", [1])], MI300X, "other")
    plot = assay_package.Selection.read(made.selection).plot(kind, recording=there)  # type: ignore[arg-type]
    plot.write(tmp_path / "there.json")
    assert "aten::new" in (tmp_path / "there.json").read_text() or kind == "launches"
