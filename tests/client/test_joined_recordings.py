"""Several files in one call: what is one workload on one kind of GPU is joined, all else is refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client import api
from assay_sampling import errors
from tests.support.client import hand_made

Assay = Callable[..., Any]

V100 = "kineto/v100_training_19370_kernels.json.gz"
A100 = "kineto/a100_input_dims_8568_kernels.json.gz"
SMALL_A100 = "kineto/a100_alexnet_79_kernels.json.gz"
OTHER_V100 = "kineto/v100_input_dims_9876_kernels.json.gz"
VERBS = (
    ("select", "stem"),
    ("compare", "-m", "stem"),
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand_made.write_kineto(tmp_path / "rank0.json")


@pytest.fixture
def later(tmp_path: Path) -> Path:
    return hand_made.write_kineto(tmp_path / "rank1.json", late_us=3.0, slower=1.5)


def refused(ended: Any, *words: str) -> None:
    assert (ended.code, ended.stdout) == (7, ""), ended
    for word in words:
        assert word in ended.stderr


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("ranks", [(), ("--ranks",)])
def test_real_recordings_of_two_gpus_are_refused(
    assay: Assay, shared_data: Path, verb: tuple[str, ...], ranks: tuple[str, ...]
) -> None:
    ended = assay(*verb, shared_data / OTHER_V100, shared_data / SMALL_A100, *ranks)
    refused(ended, "two kinds of GPU (Tesla V100-SXM2-16GB and NVIDIA A100-PG509-200)", "assay evaluate")


def test_two_models_of_one_architecture_are_two_kinds(assay: Assay, shared_data: Path) -> None:
    ended = assay("select", "stem", shared_data / V100, shared_data / OTHER_V100, "--ranks")
    refused(ended, "two kinds of GPU (Tesla V100-SXM2-32GB and Tesla V100-SXM2-16GB)")


def test_two_real_workloads_of_one_gpu_are_refused(assay: Assay, shared_data: Path) -> None:
    ended = assay("select", "stem", shared_data / A100, shared_data / SMALL_A100)
    refused(ended, "both hold launch 0 of process 0", "--ranks")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("ranks", [(), ("--ranks",)])
def test_a_real_recording_given_twice_is_refused(
    assay: Assay, shared_data: Path, tmp_path: Path, verb: tuple[str, ...], ranks: tuple[str, ...]
) -> None:
    plain = tmp_path / "copy.json"
    plain.write_bytes(gzip.decompress((shared_data / SMALL_A100).read_bytes()))
    for second in (shared_data / SMALL_A100, plain):
        refused(assay(*verb, shared_data / SMALL_A100, second, *ranks), "the same recording")


def test_workloads_without_a_kernel_in_common_are_called_two(
    assay: Assay, trace: Path, tmp_path: Path
) -> None:
    text = trace.read_text()
    for kernel in hand_made.KERNELS:
        text = text.replace(kernel, f"another_{kernel}")
    other = tmp_path / "other.json"
    other.write_text(text)
    refused(assay("select", "stem", trace, other), "two workloads", "no kernel in common")


def test_ranks_are_joined_and_every_output_says_so(
    assay: Assay, trace: Path, later: Path, tmp_path: Path
) -> None:
    written = tmp_path / "selection.json"
    ended = assay("select", "systematic", trace, later, "--ranks", "-p", "launches=80", "-o", written)
    assert (ended.code, ended.stderr) == (0, "")
    assert "80 launches of 3 kernels on Tesla V100-SXM2-16GB, 2 ranks of one job" in ended.stdout
    document = json.loads(written.read_text())
    assert document["profile"]["ranks"] == 2
    chosen = [r for group in document["groups"] for r in group["representatives"]]
    assert [(r["process"], r["launch"]) for r in chosen] == [(p, i) for p in (0, 1) for i in range(40)]

    shown = assay("compare", trace, later, "--ranks", "-m", "stem")
    assert "2 ranks of one job" in shown.stdout
    compared = json.loads(assay("compare", trace, later, "--ranks", "-m", "stem", "--json").stdout)
    assert compared["profile"]["ranks"] == 2

    assert "on Tesla V100-SXM2-16GB, 2 ranks" in shown.stdout

    evaluated = json.loads(assay("evaluate", written, trace, later, "--ranks", "--json").stdout)
    assert evaluated["evaluated_on"]["ranks"] == evaluated["selected_on"]["ranks"] == 2
    assert evaluated["error_percent"] == 0
    assert assay("evaluate", written, trace, later, "--ranks").stdout.count("2 ranks of one job") == 2


def test_the_order_of_ranks_gives_the_process(assay: Assay, trace: Path, later: Path) -> None:
    selection = api.select("systematic", [later, trace], ranks=True, parameters={"launches": 80})
    assert selection.profile.ranks == 2
    assert selection.evaluation.total == 2.5 * api.select("systematic", trace).evaluation.total
    row = selection.representatives.process.tolist()
    assert row == [0] * 40 + [1] * 40


def test_ranks_of_two_levels(assay: Assay, trace: Path, later: Path, tmp_path: Path) -> None:
    windows = [hand_made.write_raw_page(tmp_path / f"window{rank}.csv", 20 + rank) for rank in (0, 1)]
    ended = assay("classify", *windows, trace, "--light", later, "--ranks")
    assert (ended.code, ended.stderr) == (0, "")
    assert "2 ranks of one job" in ended.stdout
    document = json.loads(assay("classify", *windows, trace, "--light", later, "--ranks", "--json").stdout)
    assert document["profile"]["ranks"] == 2
    assert document["two_level"]["window"]["launches"] == 41


def test_one_file_is_no_job_of_ranks(assay: Assay, trace: Path) -> None:
    ended = assay("select", "stem", trace, "--ranks")
    assert (ended.code, ended.stdout) == (2, "")
    assert "--ranks" in ended.stderr and "one recording" in ended.stderr


def test_slices_of_one_run_are_joined_by_their_offsets(assay: Assay, tmp_path: Path) -> None:
    whole = hand_made.write_raw_page(tmp_path / "whole.csv", 40)
    first = hand_made.write_raw_page(tmp_path / "first.csv", 25)
    second = hand_made.write_raw_page(tmp_path / "second.csv", 15, skip=25)
    refused(assay("select", "pks", first, second), "both hold launch 0 of process 0", "--launch-offset")
    offsets = ["--launch-offset", "0", "--launch-offset", "25"]
    joined = json.loads(assay("select", "pks", first, second, *offsets, "--json").stdout)
    alone = json.loads(assay("select", "pks", whole, "--json").stdout)
    assert joined["profile"]["ranks"] == 1
    assert joined["groups"] == alone["groups"]
    assert joined["profile"]["sequence"] == alone["profile"]["sequence"]


def test_offsets_are_given_once_or_once_a_file(assay: Assay, tmp_path: Path, trace: Path) -> None:
    window = hand_made.write_raw_page(tmp_path / "window.csv", 15, skip=25)
    ended = assay("select", "pks", window, "--launch-offset", "1", "--launch-offset", "2")
    assert ended.code == 2 and "2 launch offsets for 1 file" in ended.stderr
    ended = assay("select", "pks", window, trace, "--launch-offset", "25")
    assert ended.code == 2 and "once for each FILE" in ended.stderr
    # The light run begins at its own first launch, whatever the window skipped.
    right = assay("select", "pks", window, "--light", trace, "--launch-offset", "25", "--json")
    assert json.loads(right.stdout)["two_level"]["match_percent"] == 100
    assert json.loads(right.stdout)["two_level"]["window"]["first_launch"] == 25


def test_counters_of_another_gpu_are_refused(assay: Assay, trace: Path, tmp_path: Path) -> None:
    turing = hand_made.write_raw_page(tmp_path / "turing.csv", capability="7.5")
    volta = hand_made.write_raw_page(tmp_path / "volta.csv", 30)
    for verb in ("select", "pks"), ("select", "stem"), ("compare",):
        refused(assay(*verb, turing, "--light", trace), "two kinds of GPU")
        refused(assay(*verb, volta, turing, "--ranks"), "two kinds of GPU")
    refused(assay("classify", volta, turing, "--light", trace, "--ranks"), "two kinds of GPU")
    ended = assay("import", turing, trace, "--workload", "w", "--device", "V100", "--state", tmp_path / "s")
    refused(ended, "two kinds of GPU")


def test_a_speedup_of_a_recording_over_itself_is_refused(assay: Assay, trace: Path, tmp_path: Path) -> None:
    selection = tmp_path / "selection.json"
    assert assay("select", "systematic", trace, "-o", selection).code == 0
    copy = tmp_path / "copy.json"
    copy.write_bytes(trace.read_bytes())
    refused(assay("evaluate", selection, trace, copy), "the same recording")
    slower = hand_made.write_kineto(tmp_path / "slower.json", slower=2.0)
    assert assay("evaluate", selection, trace, slower).code == 0


def test_the_python_api_refuses_with_a_typed_reason(trace: Path, later: Path, tmp_path: Path) -> None:
    other = hand_made.write_kineto(tmp_path / "a100.json", gpu=hand_made.A100)
    for files, reason in (
        ([trace, other], "two_kinds_of_gpu"),
        ([trace, trace], "same_content"),
        ([trace, later], "overlapping_launches"),
    ):
        with pytest.raises(errors.NotJoinableError) as raised:
            api.read_profile(files)
        assert raised.value.reason == reason
        with pytest.raises(errors.NotJoinableError):
            api.compare(files)


def test_a_representative_without_cost_is_told_in_every_output(assay: Assay, tmp_path: Path) -> None:
    def nothing(path: Path, late_us: float = 0.0) -> Path:
        document = json.loads(hand_made.write_kineto(path, late_us=late_us).read_text())
        next(event for event in document["traceEvents"] if event["cat"] == "kernel")["dur"] = 0
        path.write_text(json.dumps(document))
        return path

    told = "1 of 40 representatives costs 0 in duration_ns, first launch 0 of process 0"
    here, there = nothing(tmp_path / "here.json"), nothing(tmp_path / "there.json", 1.0)
    selection = tmp_path / "selection.json"
    few = ("-p", "launches=40")
    shown = assay("select", "systematic", here, *few, "--all", "-o", selection).stdout
    assert told in shown
    assert "duration_ns is 0 for 1 launch, first for launch 0 of process 0" in shown
    (note,) = json.loads(selection.read_text())["score_notes"]
    assert (note["code"], note["representatives"], note["of"]) == ("representative_without_cost", 1, 40)
    assert told in assay("compare", here, "-m", "systematic", *few).stdout
    assert told in assay("evaluate", selection, there).stdout
    assert told in assay("evaluate", selection, here, there).stdout
