"""One contract for every form in which a selection is handed over: nothing lost, weights kept."""

from __future__ import annotations

import gzip
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from assay_sampling.errors import AssayError, MisalignedError, ParameterError, RefusedError
from assay_sampling.handover.accel_sim import filtered_entries
from assay_sampling.handover.comparing.shapes import SeenLaunch, refuse_other_launches
from assay_sampling.handover.nvbit import id_ranges
from assay_sampling.handover.offered import TARGETS, target_called
from assay_sampling.handover.perfetto import Timeline, trace_text
from assay_sampling.handover.target import HandOver, Inputs
from assay_sampling.handover.weights_file import read_weights
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.launches.table import Names
from assay_sampling.methods import registry
from assay_sampling.readers.opening import read_launches
from assay_sampling.scoring.elsewhere import score_saved_by_weights
from assay_sampling.scoring.saved_selection import SavedSelection
from assay_sampling.simulators.accel_sim.kernels_list import KernelsList, MemoryCopy
from tests.support.client import hand_made
from tests.support.sampling.accel_sim_traces import Listed, write_listed
from tests.support.sampling.macsim_traces import write_warps
from tests.support.sampling.made_launches import made_launches
from tests.support.sampling.made_selections import LINE_NAMES, saved_selections

FEW = settings(max_examples=12)
Counted = dict[int, int]


def write(handed: HandOver, folder: Path) -> None:
    for entry in handed.files:
        (folder / entry.name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / entry.name).open("wb") as file:
            for piece in entry.pieces():
                file.write(piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogateescape"))
    for name, existing in handed.links:
        (folder / name).symlink_to(existing)


@contextmanager
def inputs(saved: SavedSelection, needs: frozenset[str], kind: str) -> Iterator[Inputs]:
    """What a target needs for a selection: traces, in the form that it reads, of all launches."""
    with tempfile.TemporaryDirectory(prefix="assay-") as name:
        folder = Path(name)
        if "traces" in needs and kind.startswith("accel-sim"):
            whole = {int(launch): row for row, launch in enumerate(saved.launch)}
            write_listed(
                folder,
                [
                    Listed(
                        at + 1,
                        saved.kernel[whole[at]] if at in whole else "k",
                        tuple(saved.grid[whole[at]].tolist()) if at in whole else (1, 1, 1),
                        tuple(saved.block[whole[at]].tolist()) if at in whole else (1, 1, 1),
                    )
                    # The last launch has no trace: a whole sequence is not compared, its hash is made up.
                    for at in range(saved.document.profile.launches - 1)
                ],
            )
        elif "traces" in needs:
            paths = [f"/old/place/Kernel{at}/Trace.txt" for at in range(saved.document.profile.launches)]
            (folder / "kernel_config.txt").write_text("-1 newptx\n" + "\n".join(paths) + "\n")
            for at in range(len(paths)):
                (folder / f"Kernel{at}").mkdir()
            for row, launch in enumerate(saved.launch.tolist()):
                path = folder / f"Kernel{launch}" / "Trace.txt"
                write_warps(path, saved.grid[row].tolist(), saved.block[row].tolist())
        yield Inputs(Path("selection.json"), traces=folder if needs else None)


def counted_in(kind: str, folder: Path) -> Counted:
    """How often each launch is named in the files of a form, read as the tool would."""
    if kind.startswith("accel-sim"):
        (one,) = [folder] if kind == "accel-sim" else folder.glob("traces/*/selected/traces")
        lines = (one / "kernelslist.g").read_text().splitlines()
        names = [int(line.split("-")[1].split(".")[0]) - 1 for line in lines if line.startswith("kernel")]
        assert all((one / line).is_file() for line in lines if line.startswith("kernel"))
        alone = [int(each.name.partition("_")[2]) - 1 for each in folder.glob("traces/*/launch_*")]
        assert kind == "accel-sim" or sorted(alone) == sorted(names)
    elif kind == "macsim":
        lines = (folder / "kernel_config.txt").read_text().splitlines()
        assert lines[0] == "-1 newptx"
        names = [int(line.removeprefix("Kernel").removesuffix("/Trace.txt")) for line in lines[1:]]
        assert all((folder / line).parent.is_dir() for line in lines[1:])
    elif kind == "nvbit":
        names = [int(line) for line in (folder / "ids.txt").read_text().splitlines()]
        (sieve,) = (folder / "kernel_ids.txt").read_text().splitlines()
        assert [int(each) for each in sieve.partition(":")[2].split()] == names
    else:
        names = [int(line.split("\t")[2]) for line in table_of(folder / "weights.txt")]
    return {name: names.count(name) for name in names}


def table_of(path: Path) -> list[str]:
    return [line for line in path.read_text().split("\n")[:-1] if not line.startswith("#")][1:]


@pytest.mark.parametrize("kind", [kind for kind in TARGETS if kind != "perfetto"])
def test_every_form_keeps_the_weights_of_any_selection(kind: str) -> None:
    target = TARGETS[kind]

    @FEW
    @given(saved_selections(LINE_NAMES))
    def kept(saved: SavedSelection) -> None:
        with inputs(saved, target.needs, kind) as given_inputs, tempfile.TemporaryDirectory() as name:
            handed = target.hand_over(saved, given_inputs)
            write(handed, Path(name))
            counted = counted_in(kind, Path(name))
            again = read_weights(Path(name) / "weights.txt")
        assert counted == dict.fromkeys(saved.launch.tolist(), 1)
        assert sorted(saved.launch[handed.launches].tolist()) == sorted(saved.launch.tolist())
        weight = dict(zip(again.launch.tolist(), again.weight.tolist(), strict=True))
        there = math.fsum(weight[launch] * count for launch, count in counted.items())
        assert there == math.fsum(saved.weight.tolist())

    kept()


@settings(max_examples=60)
@given(saved_selections())
def test_a_weights_file_reads_back_to_the_last_bit(saved: SavedSelection) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "weights.txt"
        (entry,) = TARGETS["weights"].hand_over(saved, Inputs(Path("s"))).files
        path.write_text("".join(str(piece) for piece in entry.pieces()))
        again = read_weights(path)
    for column in ("process", "launch", "group", "weight", "grid", "block"):
        ours, theirs = getattr(saved, column), getattr(again, column)
        assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
    assert again.kernel == saved.kernel
    assert again.weights == saved.weights
    both = saved.light_time_weight, again.light_time_weight
    assert (both[0] is None) == (both[1] is None)
    assert both[0] is None or both[1] is None or both[0].tobytes() == both[1].tobytes()
    assert again.document.profile == saved.document.profile
    assert [g.launches for g in again.document.groups] == [g.launches for g in saved.document.groups]


@pytest.fixture
def light(tmp_path: Path) -> tuple[Launches, SavedSelection]:
    launches = read_launches(hand_made.write_kineto(tmp_path / "light.json", 40))
    selection = registry.select("random", Profile(light=launches), {"launches": 5}, 0)
    return launches, SavedSelection.of(selection.document(labels=True), "selection.json")


def test_a_chrome_trace_has_every_launch_and_the_weights(
    light: tuple[Launches, SavedSelection], tmp_path: Path
) -> None:
    launches, saved = light
    handed = TARGETS["perfetto"].hand_over(saved, Inputs(Path("s"), recording=launches))
    (entry,) = handed.files
    packed = b"".join(piece for piece in entry.pieces() if isinstance(piece, bytes))
    assert packed == b"".join(piece for piece in entry.pieces() if isinstance(piece, bytes))
    document = json.loads(gzip.decompress(packed))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    chosen = [event for event in events if event["tid"] == 0]
    drawn = [event for event in events if event["tid"] != 0]
    assert len(drawn) == len(launches)
    assert [round(event["ts"] * 1000) for event in drawn] == (
        launches.column("start_ns") - launches.column("start_ns").min()
    ).tolist()
    assert [round(event["dur"] * 1000) for event in drawn] == launches.column("duration_ns").tolist()
    assert {event["name"] for event in drawn} == set(hand_made.KERNELS)
    labels = saved.labels()
    assert labels is not None
    assert [event["tid"] - 1 for event in drawn] == labels.tolist()
    weight = {event["args"]["launch"]: event["args"]["weight"] for event in chosen}
    assert weight == dict(zip(saved.launch.tolist(), saved.weight.tolist(), strict=True))
    assert math.fsum(weight.values()) == math.fsum(saved.weight.tolist())
    names = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert names[0] == "representatives" and names[1] == "group 0"


def test_a_chrome_trace_is_made_block_by_block_and_hostile_names_stay_text(
    light: tuple[Launches, SavedSelection],
) -> None:
    launches, _ = light
    n = 150_000
    rows = np.arange(n) % len(launches)
    table = launches.table.take(rows)
    hostile = '</script>"\\\n\u2028{'
    names = Names()
    kernel = names.intern(hostile)
    table = table.set_column(
        table.schema.get_field_index("kernel_id"),
        table.schema.field("kernel_id"),
        pa.array([kernel] * n, pa.uint64()),
    )
    many = Launches(table, names)
    timeline = Timeline(
        many,
        np.arange(n) * 1500,
        np.full(n, 1001),
        np.zeros(n, np.int64),
        np.array([5]),
        np.array([2.5]),
        1,
        (),
    )
    pieces = list(trace_text(timeline, 'assay "<script>"'))
    assert max(map(len, pieces)) < 1 << 25
    assert len(pieces) > 4
    document = json.loads("".join(pieces))
    assert sum(event["ph"] == "X" for event in document["traceEvents"]) == n + 1
    drawn = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert {event["name"] for event in drawn} == {hostile}
    assert {event["dur"] for event in drawn} == {1.001}


@pytest.mark.parametrize("kind", list(TARGETS))
def test_every_target_keeps_the_contract(kind: str, light: tuple[Launches, SavedSelection]) -> None:
    _, saved = light
    target = target_called(kind)
    assert target.name == kind and target.summary
    assert target.needs <= target.takes
    if target.needs:
        with pytest.raises(ParameterError):
            target.hand_over(saved, Inputs(Path("s")))
        return
    handed = target.hand_over(saved, Inputs(Path("s")))
    assert sorted(handed.launches.tolist()) == list(range(len(saved.launch)))
    for entry in handed.files:
        assert re.fullmatch(r"[\w.-]+", entry.name) and entry.about
        assert list(entry.pieces()) == list(entry.pieces())


def test_what_is_not_a_target_is_said() -> None:
    with pytest.raises(ParameterError, match="accel-sim, accel-sim-jobs, macsim, nvbit, weights, perfetto"):
        target_called("gem5")


@pytest.mark.parametrize("kind", ["accel-sim", "accel-sim-jobs", "macsim", "nvbit"])
def test_launches_of_several_processes_are_refused(kind: str, light: tuple[Launches, SavedSelection]) -> None:
    _, saved = light
    document = saved.document.to_dict()
    document["groups"][0]["representatives"][0]["process"] = 1
    two = SavedSelection.read(document, "two")
    with pytest.raises(RefusedError, match="several processes"):
        TARGETS[kind].hand_over(two, Inputs(Path("s"), traces=Path("traces")))


def test_a_timeline_of_another_workload_is_refused(
    light: tuple[Launches, SavedSelection], tmp_path: Path
) -> None:
    _, saved = light
    other = read_launches(hand_made.write_kineto(tmp_path / "other.json", order=[0] * 40))
    with pytest.raises(MisalignedError) as caught:
        TARGETS["perfetto"].hand_over(saved, Inputs(Path("s"), recording=other))
    assert caught.value.differences


def test_ids_become_ranges() -> None:
    assert id_ranges(np.array([2, 5, 6, 7, 8, 12])) == "2 5-8 12"
    assert id_ranges(np.array([], np.int64)) == ""


def test_ranges_that_the_environment_cannot_hold_are_left_out(light: tuple[Launches, SavedSelection]) -> None:
    _, saved = light
    document = saved.document.to_dict()
    one, far = document["groups"][0]["representatives"][0], 10**12
    document["groups"] = [
        {"id": 0, "launches": 9_500, "representatives": [
            {**one, "launch": far + 2 * at, "sim_id": far + 2 * at + 1} for at in range(9_500)]}
    ]  # fmt: skip
    document["profile"]["launches"] = 2 * far
    handed = TARGETS["nvbit"].hand_over(SavedSelection.read(document, "many"), Inputs(Path("s")))
    assert [note.code for note in handed.notes] == ["ranges_too_long"]
    text = {entry.name: "".join(map(str, entry.pieces())) for entry in handed.files}
    assert "DYNAMIC_KERNEL_RANGE=" not in text["tracer.env"]
    assert f"DYNAMIC_KERNEL_LIMIT_END={far + 18_999}" in text["tracer.env"]
    assert len(text["ids.txt"].split()) == 9_500


def test_copies_stay_where_a_launch_needs_them() -> None:
    folder = Path("t")
    one, two, three = (folder / f"kernel-{at}.traceg" for at in (1, 2, 3))
    a, b = MemoryCopy(0x1000, 64), MemoryCopy(0x2000, 64)
    again, part = MemoryCopy(0x1000, 128), MemoryCopy(0x1010, 16)

    def left(*entries: Path | MemoryCopy, kept: set[Path]) -> list[Path | MemoryCopy]:
        kernels = KernelsList(folder / "kernelslist.g", (), (), entries)
        return filtered_entries(kernels, frozenset(kept))

    # What comes after the last launch is left out, and what comes before it stays, in order.
    assert left(a, one, b, two, part, three, a, kept={two}) == [a, b, two]
    # A copy that a later one covers before a launch is simulated is not needed; a part of it is none.
    assert left(a, one, again, two, kept={two}) == [again, two]
    assert left(a, part, two, kept={two}) == [a, part, two]
    assert left(a, one, again, two, kept={one, two}) == [a, one, again, two]


@pytest.mark.parametrize("method", ["random", "pks", "proportional", "sieve", "stem"])
def test_a_weights_file_scores_as_its_selection(method: str, tmp_path: Path) -> None:
    page = read_launches(hand_made.write_raw_page(tmp_path / "page.csv", 40))
    free = read_launches(hand_made.write_kineto(tmp_path / "light.json", 40))
    there = read_launches(hand_made.write_kineto(tmp_path / "slow.json", 40, slower=1.5, gpu=hand_made.A100))
    made = registry.select(method, Profile(detailed=page, light=free), {}, 0)
    saved = SavedSelection.of(made.document(labels=True), "selection")
    again = read_back(saved, tmp_path)
    without_labels = SavedSelection.of(made.document(labels=False), "selection")
    for kind, scores in score_saved_by_weights(without_labels, there).items():
        found = score_saved_by_weights(again, there)[kind]
        assert found.to_dict() == scores.to_dict() and found.interval_dict() == scores.interval_dict()
        assert scores.projected == score_saved_by_weights(saved, there)[kind].projected
    # Lines of the table in another order are the same selection; releases before had no facts for scores.
    path = tmp_path / "weights.txt"
    lines = path.read_text().split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("group\t")) + 1
    path.write_text("\n".join([*lines[:at], *sorted(lines[at:-1], reverse=True), ""]))
    for kind, scores in score_saved_by_weights(read_weights(path), there).items():
        wanted = score_saved_by_weights(saved, there)[kind]
        assert scores.projected == pytest.approx(wanted.projected)
        assert (scores.interval is None) == (wanted.interval is None)
    path.write_text("\n".join(line for line in lines if not line.startswith(FACTS_FOR_SCORES)))
    old = read_weights(path)
    assert (old.labels(), old.design) == (None, None)
    assert [e.projected for e in score_saved_by_weights(old, there).values()] == [
        e.projected for e in score_saved_by_weights(saved, there).values()
    ]


FACTS_FOR_SCORES = (
    "# drawing",
    "# launches_without_time",
    "# two_level",
    "# groups",
    "# representatives",
    "# labels",
)


def read_back(saved: SavedSelection, folder: Path) -> SavedSelection:
    (entry,) = TARGETS["weights"].hand_over(saved, Inputs(Path("s"))).files
    (folder / "weights.txt").write_text("".join(map(str, entry.pieces())))
    return read_weights(folder / "weights.txt")


def refused_weights(text: str, tmp_path: Path) -> AssayError:
    path = tmp_path / "weights.txt"
    path.write_text(text)
    with pytest.raises(AssayError) as caught:
        read_weights(path)
    return caught.value


def test_a_weights_file_of_another_tool_or_version_is_refused(
    light: tuple[Launches, SavedSelection], tmp_path: Path
) -> None:
    _, saved = light
    (entry,) = TARGETS["weights"].hand_over(saved, Inputs(Path("s"))).files
    text = "".join(map(str, entry.pieces()))
    lines = text.split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("group\t"))

    def with_cell(column: int, cell: str) -> str:
        cells = lines[at + 1].split("\t")
        cells[column] = cell
        return "\n".join([*lines[: at + 1], "\t".join(cells), *lines[at + 2 :]])

    change: Callable[[str], str] = lambda new: text.replace("# assay-weights 1", new, 1)  # noqa: E731
    cases = {
        change("# assay-weights 2"): "version is 2",
        change("# assay-weights"): "version is missing",
        change("# other-weights 1"): "does not begin with",
        "0.25 0\n0.75 1\n": "SimPoint",
        text[:-10]: "cut off within its last line",
        "\n".join(lines[:3]) + "\n": "missing",
        with_cell(0, "9"): "group",
        with_cell(3, "1000"): "sim_id",
        with_cell(4, "many"): "weight",
        with_cell(4, "nan"): "weight is negative or not a number",
        with_cell(6, "1,1"): "three axes",
        with_cell(8, "bare"): "kernel",
        with_cell(2, "-1"): "launch",
        text.replace("group\tprocess", "group\trank"): "the columns are not",
        text.replace('# seed: 0', "# seed: {"): "seed",
        text.replace("# group_launches: [", "# group_launches: [-"): "group_launches",
        re.sub("# groups: .*", "# groups: [1]", text): "'groups': it is not an object of lists",
        re.sub("# groups: .*", '# groups: {"kernels": [1, 2]}', text): "kernels is not a list of 1 values",
        re.sub("# drawing: .*", '# drawing: "by hand"', text): "drawing",
    }  # fmt: skip
    for changed, said in cases.items():
        assert changed != text
        assert said in str(refused_weights(changed, tmp_path)), said


@pytest.mark.parametrize("what", ["grid", "block"])
def test_a_representative_without_a_grid_is_never_compared_with_traces(what: str) -> None:
    nothing = {f"{what}_{axis}": [None] * 3 for axis in "xyz"}
    launches = made_launches(["k"] * 3, duration_ns=[1, 2, 3], **nothing)
    selection = registry.select("random", Profile(light=launches), {"launches": 2})
    saved = SavedSelection.read(selection.document(labels=True).to_dict(), "selection.json")
    seen = {int(n): SeenLaunch("k", (1, 1, 1), (1, 1, 1), f"kernel-{n + 1}.traceg") for n in saved.launch}
    with pytest.raises(RefusedError, match=rf"the {what} of launch \d \('k'\) is not known, one of 2 among"):
        refuse_other_launches("traces", saved, seen, "exact")
    if what == "grid":
        assert refuse_other_launches("traces", saved, seen, "name_block") == ()
