"""Into the simulator and back on real logs of Accel-Sim: export, list, import, and three errors by hand."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_report.external_results import read_simulated
from assay_sampling.errors import InputError, MisalignedError, RefusedError, StorageError
from assay_sampling.handover.simulated_logs import GivenLog, read_log
from assay_sampling.projection.files import ProjectionOptions
from assay_sampling.simulators.accel_sim.output import read_output
from tests.support.client.silicon_pages import write_silicon
from tests.support.client.simulate_bench import made_bench
from tests.support.sampling import accel_sim_logs as logs
from tests.support.sampling.accel_sim_traces import Listed, write_listed

Assay = Callable[..., Any]
COPIES = ("MemcpyHtoD,0x00007f5c40000000,1048576", "MemcpyHtoD,0x00007f5c44000000,1048576")
# A loose rule, by which some of these short launches stop.
RULE = ("-p", "rule=instructions", "-p", "s=10", "-p", "window_cycles=1500")
# Notes that say which launches of a log count.
COUNTS = ("log_counts_launches", "log_cut_after_launches")


def launches_of(log: Path) -> list[Any]:
    return read_output(log)[1]


def document_of(ended: Any) -> dict[str, Any]:
    assert ended.code == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def write_traces(folder: Path, launches: list[Any]) -> Path:
    listed = [Listed(each.traced_id, each.kernel.strip(), each.grid, each.block) for each in launches]
    return write_listed(folder, listed, copies=COPIES)


@pytest.fixture
def mix(shared_data: Path, tmp_path: Path, assay: Assay) -> dict[str, Any]:
    """The 20 launches of `mix20`, a recording of them on "silicon", a selection on it, and their traces."""
    log = shared_data / "accel_sim" / "mix20.base.out.gz"
    launches = launches_of(log)
    cycles = [0.9 * each.cycles + 10.0 * index for index, each in enumerate(launches)]
    page = write_silicon(tmp_path / "silicon.csv", launches, cycles)
    selection = tmp_path / "mix.json"
    assert assay("select", "sieve", page, "-o", selection).code == 0
    return {
        "log": log, "launches": launches, "cycles": cycles, "page": page, "selection": selection,
        "intervals": shared_data / "accel_sim" / "mix20.base.visualizer.gz",
        "traces": write_traces(tmp_path / "traces", launches),
    }  # fmt: skip


def by_hand(true: float, estimate: float) -> float:
    return 100 * abs(true - estimate) / true


def test_into_accel_sim_and_back_gives_the_three_errors(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    out = tmp_path / "handed"
    traces = mix["traces"].parent
    written = document_of(
        assay("export", mix["selection"], "--to", "accel-sim", "--traces", traces, "-o", out, "--json")
    )
    listed = (out / "kernelslist.g").read_text().splitlines()
    ids = [int(line.split("-")[1].removesuffix(".traceg")) for line in listed if line.startswith("kernel")]
    assert [each + 1 for each in written["launches"]] == ids == sorted(ids)
    assert 1 < len(ids) < 20
    assert listed[:2] == list(COPIES)
    assert all((out / f"kernel-{each}.traceg").resolve().parent == traces.resolve() for each in ids)

    document = document_of(
        assay("import", "accel-sim", mix["log"], "--selection", mix["selection"], "--intervals",
              mix["intervals"], *RULE, "--json")
    )  # fmt: skip
    projected = document_of(assay("project", mix["log"], "--intervals", mix["intervals"], *RULE, "--json"))
    weight = dict(zip(ids, written["weights"], strict=True))
    # The formulas of PKA's Table 4, by hand, from the log's own numbers.
    silicon = sum(mix["cycles"])
    full = {each.traced_id: each.cycles for each in mix["launches"]}
    projection = {each["traced_id"]: each["projected_cycles"] for each in projected["launches"]}
    latency = 5000
    for name, less in (("all_cycles", 0), ("active_cycles", latency)):
        found = document[name]
        total = sum(cycles - less for cycles in full.values())
        pks = sum(weight[each] * (full[each] - less) for each in ids)
        pka = sum(weight[each] * (projection[each] - less) for each in ids)
        assert found["simulator_error_percent"] == pytest.approx(by_hand(silicon, total), rel=1e-12)
        assert found["pks_error_percent"] == pytest.approx(by_hand(silicon, pks), rel=1e-12)
        assert found["pka_error_percent"] == pytest.approx(by_hand(silicon, pka), rel=1e-12)
        assert found["pks_error_of_full_percent"] == pytest.approx(by_hand(total, pks), rel=1e-12)
        chosen = sum(full[each] - less for each in ids)
        assert found["pks_speedup"] == pytest.approx(total / chosen, rel=1e-12)
    assert document["all_cycles"]["pka_error_percent"] != document["all_cycles"]["pks_error_percent"]
    # The same numbers as the older table has.
    row = document_of(
        assay(
            "pka-table", "row", mix["selection"], mix["log"], "--intervals", mix["intervals"], *RULE, "--json"
        )
    )["rows"][0]
    for name in ("simulator_error_percent", "pks_error_percent", "pka_error_percent", "pks_speedup"):
        assert row[name] == document["all_cycles"][name]
    again = document_of(
        assay("import", "accel-sim", mix["log"], "--selection", out / "weights.txt", "--intervals",
              mix["intervals"], *RULE, "--json")
    )  # fmt: skip
    assert again["all_cycles"] == document["all_cycles"]
    assert again["active_cycles"] == document["active_cycles"]


def test_the_report_takes_what_the_import_wrote(mix: dict[str, Any], tmp_path: Path, assay: Assay) -> None:
    written = tmp_path / "simulation.json"
    assert assay("import", "accel-sim", mix["log"], "--selection", mix["selection"], "-o", written).code == 0
    document = json.loads(written.read_text())
    (entry,) = read_simulated(written)
    assert entry.application == document["workload"]
    for name in ("simulator_error_percent", "pks_error_percent", "pks_speedup", "pka_error_percent"):
        assert getattr(entry, name) == document["all_cycles"][name]
    assert entry.pks_speedup is not None and entry.pks_speedup > 1


@pytest.mark.parametrize("case", [("reuse", 3, 0, 19263, 16541), ("stencil", 2, 2, 9325, 8919)])
def test_a_launch_that_was_simulated_alone_shows_the_cold_start(
    shared_data: Path, tmp_path: Path, assay: Assay, case: tuple[str, int, int, int, int]
) -> None:
    data = shared_data / "accel_sim"
    run, launch, seed, cold, warm = case
    full, alone = data / f"{run}.base.out.gz", data / f"{run}.only{launch}.out.gz"
    selection = tmp_path / "one.json"
    assert assay("select", "systematic", full, "-p", "launches=1", "--seed", seed, "-o", selection).code == 0
    joined = assay("import", "accel-sim", alone, "--full", full, "--selection", selection, "--json")
    document = document_of(joined)
    (representative,) = document["representatives"]
    launches = launches_of(full)
    assert (representative["sim_id"], representative["weight"]) == (launch, len(launches))
    assert (representative["cycles"], representative["full_run_cycles"]) == (cold, warm)
    for name, latency in (("all_cycles", 0), ("active_cycles", 5000)):
        found, total = document[name], sum(each.cycles - latency for each in launches)
        stands_for = len(launches) * (cold - latency)
        assert found["full_cycles"] == total
        assert found["pks_error_of_full_percent"] == pytest.approx(by_hand(total, stands_for))
        assert found["cold_start_percent"] == pytest.approx(100 * len(launches) * (cold - warm) / total)
        assert found["simulator_error_percent"] is None
    assert "no_silicon_cycles" in [note["code"] for note in document["notes"]]
    shown = assay("import", "accel-sim", alone, "--full", full, "--selection", selection).stdout
    assert f"{cold - warm:,}" in shown and f"launch counts ({launch})" in shown
    assert "by launches, as PKA has them" in shown
    by_time = assay(
        "import", "accel-sim", alone, "--full", full, "--selection", selection, "--weights", "light_time"
    )
    assert "by light time" in by_time.stdout and "as PKA has them" not in by_time.stdout


def test_a_replay_of_memory_instructions_is_no_simulation_of_its_launch(
    shared_data: Path, tmp_path: Path, assay: Assay
) -> None:
    data, selection = shared_data / "accel_sim", tmp_path / "one.json"
    full = data / "reuse.base.out.gz"
    assert assay("select", "systematic", full, "-p", "launches=1", "-o", selection).code == 0
    warmed = data / "reuse.memwarm3.out.gz"
    document = document_of(
        assay("import", "accel-sim", warmed, "--full", full, "--selection", selection, "--json")
    )
    assert document["representatives"][0]["cycles"] == 16587
    errors = document["all_cycles"]
    assert errors["replayed_cycles"] == 12964
    assert errors["pks_speedup"] == pytest.approx(errors["full_cycles"] / (16587 + 12964))
    active = document["active_cycles"]
    assert active["replayed_cycles"] == 12964 - 5000
    assert active["pks_speedup"] == pytest.approx(active["full_cycles"] / (16587 + 12964 - 2 * 5000))
    assert document["logs"][0]["counted_ids"] == "3"
    assert document["logs"][0]["notes"][-1]["code"] == "replays_left_out"
    # Of launch 2 there are memory instructions alone: a selection of it is not simulated.
    assert assay("select", "systematic", full, "-p", "launches=1", "--seed", 2, "-o", selection).code == 0
    ended = assay("import", "accel-sim", warmed, "--selection", selection)
    assert ended.code == RefusedError.exit_code and "missing: launch 2" in ended.stderr


def made_log(path: Path, *launches: logs.Launch, ending: str = logs.EXIT, **options: str) -> Path:
    path.write_text(logs.output(launches, ending, **options))
    return path


@pytest.fixture
def made(tmp_path: Path, assay: Assay) -> dict[str, Any]:
    """Six launches of two kernels, simulated, and a selection of two of them."""
    launches = [
        logs.Launch(name=f"_Z1{'ab'[at % 2]}v", traced_id=at + 1, grid=(at % 2 + 1, 1, 1), cycles=1000 + at)
        for at in range(6)
    ]
    log = made_log(tmp_path / "full.out", *launches)
    selection = tmp_path / "two.json"
    assert assay("select", "systematic", log, "-p", "launches=2", "-o", selection).code == 0
    groups = json.loads(selection.read_text())["groups"]
    ids = sorted(each["sim_id"] for group in groups for each in group["representatives"])
    return {"launches": launches, "log": log, "selection": selection, "ids": ids}


def refusal(ended: Any) -> str:
    assert (ended.code, ended.stdout) == (RefusedError.exit_code, ""), ended.stderr
    return str(ended.stderr)


def test_logs_that_do_not_belong_together_are_refused_with_the_first_difference(
    made: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    first, second = (made["launches"][each - 1] for each in made["ids"])
    one = made_log(tmp_path / "one.out", first)

    def joined(*given: object) -> str:
        return refusal(assay("import", "accel-sim", *given, "--selection", made["selection"]))

    other = made_log(tmp_path / "other.out", second, gpgpu_n_clusters="40")
    assert "-gpgpu_n_clusters is 4 in the first and 40 in the second" in joined(one, other)
    banner = "*** GPGPU-Sim Simulator Version {} [build gpgpu-sim_git-commit-{}_modified_4.0] ***\n"
    for name, version, commit in (
        ("a", "4.2.0", "667834cf"),
        ("b", "4.0.1", "667834cf"),
        ("c", "4.2.0", "1f"),
    ):
        launch = first if name == "a" else second
        (tmp_path / name).write_text(banner.format(version, commit * 4) + logs.output([launch]))
    said = joined(tmp_path / "a", tmp_path / "b")
    assert "the version of GPGPU-Sim is 4.2.0 in the first and 4.0.1 in the second" in said
    assert "the commit of GPGPU-Sim is 667834cf" in joined(tmp_path / "a", tmp_path / "c")
    assert "launch" in joined(one, one) and "simulated twice" in joined(one, one)
    said = joined(one)
    assert "1 of the 2 selected launches were not simulated" in said
    assert f"missing: launch {made['ids'][1]} (_Z" in said
    beyond = made_log(tmp_path / "beyond.out", logs.Launch(traced_id=9))
    assert "is launch 9, and the selection was made on 6 launches" in joined(beyond)
    for changed, text in (
        ({"name": "_Z5otherv"}, "kernel '_Z5otherv' and not"),
        ({"grid": (7, 1, 1)}, "grid (7, 1, 1) and not"),
        ({"block": (32, 1, 1)}, "block (32, 1, 1) and not"),
    ):
        wrong = logs.Launch(**{**first.__dict__, **changed})  # type: ignore[arg-type]
        assert text in joined(made_log(tmp_path / "wrong.out", wrong))
    # A full run of as many launches, of which one between the representatives is another.
    free = next(at for at in range(6) if at + 1 not in made["ids"])
    swapped = [
        logs.Launch(**{**each.__dict__, "grid": (9, 1, 1)}) if at == free else each
        for at, each in enumerate(made["launches"])
    ]
    said = joined(made_log(tmp_path / "swapped.out", *swapped))
    assert "the launches between them differ" in said
    assert f"launch {free}" in said


def test_a_log_that_ends_within_a_launch_says_which_launches_count(
    made: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    text = made["log"].read_text()
    last = made["ids"][-1]
    cut = tmp_path / "cut.out"
    # Enough for the selected launches, cut within the one after them.
    cut.write_text(text[: text.index(f"kernel_name = {made['launches'][last].name}", text.index(
        f"Processing kernel traces/kernel-{last + 1}.traceg"))])  # fmt: skip
    document = document_of(assay("import", "accel-sim", cut, "--selection", made["selection"], "--json"))
    assert document["logs"][0]["counted_ids"] == f"1-{last}"
    assert document["all_cycles"]["full_cycles"] is None
    (note,) = [n for n in document["logs"][0]["notes"] if n["code"] == "log_counts_launches"]
    assert (note["launches"], note["left_out"]) == (last, last + 1)
    # As the run of all launches it is not enough, and says how far it goes.
    said = refusal(assay("import", "accel-sim", made["log"], "--full", cut, "--selection", made["selection"]))
    assert f"missing: launch {last + 1}" in said
    assert f"cut.out holds 1-{last}" in said and f"ends within launch {last + 1}" in said


def test_a_real_log_cut_in_its_compressed_stream_counts_as_far_as_it_goes(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    packed = mix["log"].read_bytes()
    cut, plain = tmp_path / "cut.out.gz", tmp_path / "plain.out"
    held = []
    for size in (len(packed) // 8, len(packed) // 2, len(packed) - 4000, len(packed) - 8, len(packed) - 1):
        cut.write_bytes(packed[:size])
        plain.write_bytes(zlib.decompressobj(wbits=31).decompress(packed[:size]))
        found, wanted = (read_log(GivenLog(path), ProjectionOptions()) for path in (cut, plain))
        assert found.numbers == wanted.numbers and found.started == wanted.started
        note = next(note for note in found.notes() if note.code in COUNTS)
        assert f"({found.counted_ids})" in note.text and str(cut) in note.text
        held.append(len(found.numbers))
    assert 0 < held[0] < held[1] < held[2] and held[3:] == [20, 20]  # the trailer holds no launch
    document = document_of(assay("import", "accel-sim", cut, "--selection", mix["selection"], "--json"))
    (log,) = document["logs"]
    assert (log["ending"], log["counted_ids"]) == ("exit", "1-20")
    assert "log_cut_in_compression" in [note["code"] for note in log["notes"]]
    whole = assay("import", "accel-sim", mix["log"], "--selection", mix["selection"], "--json")
    assert document["all_cycles"] == document_of(whole)["all_cycles"]
    cut.write_bytes(packed[: len(packed) // 8])
    said = refusal(assay("import", "accel-sim", cut, "--selection", mix["selection"]))
    assert f"cut.out.gz holds 1-{held[0]}" in said
    cut.write_bytes(packed[:10])
    ended = assay("import", "accel-sim", cut, "--selection", mix["selection"])
    assert ended.code == 3 and "cut off before its end" in ended.stderr


# What an evaluation takes from the label of every launch, which a weights file does not have.
OF_LABELS = ("group_error_percent", "weighted_cov_percent", "notes", "decomposition")


def test_a_weights_file_gives_what_its_selection_gives(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    weights = tmp_path / "weights.txt"
    document_of(assay("export", mix["selection"], "--to", "weights", "-o", weights, "--json"))
    documents = []
    for selection in (mix["selection"], weights):
        given = ("import", "accel-sim", mix["log"], "--selection", selection, "--workload", "mix20", "--json")
        documents.append(document_of(assay(*given)))
        assert documents[-1]["selection"].pop("path") == str(selection)
    assert documents[0] == documents[1]
    for recording in (mix["page"], mix["log"]):
        by_selection, by_weights = (
            document_of(assay("evaluate", selection, recording, "--json"))
            for selection in (mix["selection"], weights)
        )
        assert by_selection["group_error_percent"] is not None
        assert "saved_without_labels" in {note["code"] for note in by_weights["notes"]}
        for document in (by_selection, by_weights):
            for name in OF_LABELS:
                del document[name]
            for scores in document["by_weights"].values():
                del scores["group_error_percent"]
        # Weights do not say what to expect on another GPU, which is among the reasons.
        assert [document.pop("verdict")["level"] for document in (by_selection, by_weights)] == [
            "do_not",
            "do_not",
        ]
        assert by_selection == by_weights


def test_an_export_does_not_write_where_it_must_not(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    traces = mix["traces"].parent
    before = mix["traces"].read_text()
    given = ("export", mix["selection"], "--to", "accel-sim", "--traces", traces, "-o")
    for force in ((), ("--force",)):
        ended = assay(*given, traces, *force)
        assert (ended.code, mix["traces"].read_text()) == (2, before)
    assert "whose list would be overwritten" in ended.stderr
    out = tmp_path / "out"
    assert assay(*given, out).code == 0
    assert assay(*given, out).code == StorageError.exit_code
    assert assay(*given, out, "--force").code == 0


def test_an_export_can_be_moved_with_its_traces_and_a_copy_without_them(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    mix["traces"].parent.rename(here / "traces")
    command = ("export", mix["selection"], "--to", "accel-sim", "--traces", here / "traces", "--json")
    linked = document_of(assay(*command, "-o", here / "handed"))
    copied = document_of(assay(*command, "-o", tmp_path / "copied", "--copy"))
    texts = {Path(path).name: Path(path).read_bytes() for path in linked["links"]}
    here.rename(there)
    assert {name: (there / "handed" / name).read_bytes() for name in texts} == texts
    shutil.rmtree(there / "traces")
    assert not any((there / "handed" / name).exists() for name in texts)
    assert {name: (tmp_path / "copied" / name).read_bytes() for name in texts} == texts
    assert copied["links"] == []
    assert {Path(each["path"]).name for each in copied["files"]} >= texts.keys()


def test_a_copy_over_links_leaves_the_traces_as_they_are(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    command = (
        "export",
        mix["selection"],
        "--to",
        "accel-sim",
        "--traces",
        mix["traces"],
        "-o",
        tmp_path / "out",
    )
    assert assay(*command).code == 0
    assert assay(*command, "--copy", "--force").code == 0
    (copy, *_) = sorted((tmp_path / "out").glob("kernel-*.traceg"))
    copy.write_text("changed")
    assert not copy.is_symlink()
    assert "changed" not in (mix["traces"].parent / copy.name).read_text()
    refused = assay("export", mix["selection"], "--to", "nvbit", "--copy")
    assert (refused.code, "takes no traces" in refused.stderr) == (2, True)


def test_traces_of_another_workload_are_refused_with_the_first_difference(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    def exported(folder: Path, *more: str) -> Any:
        out = tmp_path / f"out-{folder.name}"
        return assay("export", mix["selection"], "--to", "accel-sim", "--traces", folder, "-o", out, *more)

    chosen = sorted(
        each["sim_id"]
        for group in json.loads(mix["selection"].read_text())["groups"]
        for each in group["representatives"]
    )
    listed = [Listed(e.traced_id, e.kernel.strip(), e.grid, e.block) for e in mix["launches"]]
    free = next(at for at in range(20) if at + 1 not in chosen)
    first = chosen[0] - 1

    def with_one(place: int, **changed: Any) -> list[Listed]:
        return [Listed(**{**e.__dict__, **changed}) if at == place else e for at, e in enumerate(listed)]

    cases = {
        "kernel": (
            with_one(first, kernel="_Z5otherv"),
            f"kernel-{first + 1}.traceg (launch {first + 1}): kernel",
        ),
        "grid": (with_one(first, grid=(1, 2, 3)), "grid (1, 2, 3) and not"),
        "between": (with_one(free, kernel="_Z5otherv"), f"process 0 launch {free}"),
        "tracer": (with_one(chosen[1] - 1, tracer_version=4), "tracer version is 5 in"),
        "fewer": ([e for e in listed if e.kernel_id != chosen[1]], f"kernel-{chosen[1]}.traceg is not in"),
        "more": ([*listed, Listed(21)], "kernel-21.traceg is launch 21, and the selection was made on 20"),
    }
    for name, (traces, text) in cases.items():
        said = refusal(exported(write_listed(tmp_path / name, traces).parent))
        assert text in said, said
        assert not (tmp_path / f"out-{name}").exists()
    assert exported(tmp_path / "grid", "--match", "name_block").code == 0
    assert MisalignedError.exit_code == RefusedError.exit_code


def test_folders_of_other_tools_name_what_to_do(mix: dict[str, Any], tmp_path: Path, assay: Assay) -> None:
    def exported(to: str, folder: Path) -> str:
        ended = assay("export", mix["selection"], "--to", to, "--traces", folder, "-o", tmp_path / "out")
        assert ended.code == InputError.exit_code, ended.stderr
        return str(ended.stderr)

    raw, empty, packed, macsim = (tmp_path / name for name in ("raw", "empty", "packed", "macsim"))
    for folder in (raw, empty, packed, macsim):
        folder.mkdir()
    (raw / "kernelslist").write_text("kernel-1.trace\n")
    (packed / "kernelslist.g").write_text("kernel-1.traceg.gz\n")
    (macsim / "kernel_config.txt").write_text("-1 newptx\nKernel0/Trace.txt\n")
    assert "post-traces-processing" in exported("accel-sim", raw)
    assert "it has no kernelslist.g" in exported("accel-sim", empty)
    assert "does not read that compression" in exported("accel-sim", packed)
    assert "hand over with: --to macsim" in exported("accel-sim", macsim)
    assert "hand over with: --to accel-sim" in exported("macsim", mix["traces"].parent)
    lines = mix["traces"].read_text().splitlines()
    at = next(number for number, line in enumerate(lines, 1) if line == "kernel-1.traceg")
    (mix["traces"].parent / "kernel-1.traceg").unlink()
    said = exported("accel-sim", mix["traces"])
    assert f"kernelslist.g:{at}: there is no kernel-1.traceg, which it lists" in said
    assert "copy the trace of launch 1 next to the list" in said
    (empty / "kernelslist.g").write_text("kernel-20.traceg\n")
    (empty / "kernel-20.traceg").symlink_to(mix["traces"].parent / "kernel-20.traceg")
    ended = assay("export", mix["selection"], "--to", "accel-sim", "--traces", empty, "-o", tmp_path / "out")
    assert "selected launches have no trace" in refusal(ended)
    assert "kernel-1.traceg is not in the list" in ended.stderr
    (empty / "kernelslist.g").write_text("")
    said = exported("accel-sim", empty)
    assert "it is empty" in said and "profiler" not in said
    ended = assay("export", mix["selection"], "--to", "macsim", "--traces", macsim)
    assert "it lists 1 launches, and the selection was made on 20" in refusal(ended)


def test_the_warm_up_list_replays_the_launches_before(
    mix: dict[str, Any], tmp_path: Path, assay: Assay
) -> None:
    out = tmp_path / "warm"
    given = ("--to", "accel-sim", "--traces", mix["traces"], "-o", out, "--warm-up", 2)
    written = document_of(assay("export", mix["selection"], *given, "--json"))
    ids = [each + 1 for each in written["launches"]]
    lines = (out / "warm-kernelslist.g").read_text().splitlines()
    assert [line for line in lines if "-mem-" not in line] == [f"kernel-{each}.traceg" for each in ids]
    for line in lines:
        assert (out / line).exists()
        if "-mem-" in line:
            assert "MOV" not in (out / line).read_text() and "LDG" in (out / line).read_text()
    later = next(each for each in ids if each > 2)
    assert f"\n{later}: {later - 2} {later - 1}\n" in f"\n{(out / 'warm-up.txt').read_text()}"


def test_launches_of_several_streams_get_a_note_that_simulators_overlap_them(
    tmp_path: Path, assay: Assay
) -> None:
    bench = made_bench(tmp_path, assay, "random", "launches=3")
    words = (
        "export",
        bench.selection,
        "--to",
        "accel-sim",
        "--traces",
        bench.traces,
        "-o",
        tmp_path / "handed",
    )
    alone = document_of(assay(*words, "--json"))
    assert "launches_on_several_streams" not in [note["code"] for note in alone["notes"]]
    (trace,) = bench.traces.glob(f"kernel-{max(bench.weights)}.traceg*")
    text = trace.read_text()
    changed, count = re.subn(r"(?m)^-cuda stream id = \d+$", "-cuda stream id = 9", text)
    assert count == 1
    trace.write_text(changed)
    apart = document_of(assay(*words, "--force", "--json"))
    (note,) = [each for each in apart["notes"] if each["code"] == "launches_on_several_streams"]
    assert note["text"].startswith(
        "the selected launches are of 2 streams: with -gpgpu_concurrent_kernel_sm 1"
    )
