"""``assay import``: recordings into a store, here and on a server, and what is refused beforehand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.recordings.importing import campaign_text, check_kind, parse_condition, recorded_run
from assay_sampling.errors import ParameterError
from assay_sampling.files.synthetic_mark import SYNTHETIC_MARK
from assay_sampling.readers.nsys.parquet_export import NsysParquetReader
from assay_sampling.readers.opening import READERS, open_recording
from assay_virtual.tools.ncu.command import run_ncu
from assay_virtual.tools.nsys.command import run_nsys
from tests.support.client import hand_made
from tests.support.client.scripted_server import FakeServer, Script
from tests.support.server.campaign_files import load_campaign

Assay = Callable[..., Any]
STENCIL = Path(__file__).resolve().parents[2] / "campaigns" / "virtual" / "stencil.toml"


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[Path, Path]:
    """A detailed and a light recording of one workload."""
    return (
        hand_made.write_raw_page(tmp_path / "window.csv", 30),
        hand_made.write_kineto(tmp_path / "light.json", 50),
    )


@pytest.fixture(scope="module")
def virtual_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A detailed and a light file of a workload on a virtual GPU."""
    folder = tmp_path_factory.mktemp("virtual")
    window, light, report = folder / "window.csv", folder / "light.sqlite", folder / "light.nsys-rep"
    # A folder of its own for the tool's lock: in /tmp it may be another user's.
    gpu = {"ASSAY_VIRTUAL_GPU": '{"architecture": "V100"}', "TMPDIR": str(folder)}
    program = str(STENCIL)
    with window.open("w") as page:
        counted = ["--csv", "--page", "raw", "--print-units", "base", "--launch-count", "100", program]
        assert run_ncu(counted, gpu, page, sys.stderr) == 0
    assert run_nsys(["profile", "-o", str(report), program], gpu, sys.stdout, sys.stderr) == 0
    exported = ["export", "-t", "sqlite", "-o", str(light), str(report)]
    assert run_nsys(exported, gpu, sys.stdout, sys.stderr) == 0
    return [window, light]


@pytest.mark.processes
def test_import_into_a_state_folder(assay: Assay, tmp_path: Path, recordings: tuple[Path, Path]) -> None:
    detailed, light = recordings
    state = tmp_path / "state"
    where = ("--workload", 'my "loop": #1', "--device", "V100", "--state", state, "--condition", "cache=none")
    ended = assay("import", detailed, light, *where, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    campaign = json.loads(ended.stdout)["campaign"]
    assert (campaign["campaign_id"], campaign["state"]) == ("my-loop-1-1", "done")
    assert [(run["run_id"], run["level"], run["launches"]) for run in campaign["runs"]] == [
        ("my-loop-1-1.0000", "detailed", 30),
        ("my-loop-1-1.0001", "light", 50),
    ]
    assert {run["condition"]["cache"] for run in campaign["runs"]} == {"none"}
    assert {run["workload"] for run in campaign["runs"]} == {'my "loop": #1'}
    (stored,) = (state / "server" / "records" / "my-loop-1-1.0001").glob("*.parquet")
    with open_recording(stored) as recording:
        assert sum(batch.records.num_rows for batch in recording.batches()) == 50

    ended = assay("import", "--light", light, "--name", "again", *where)
    assert ended.code == 0
    assert "campaign again-1: done" in ended.stdout
    assert "run again-1.0000: light, done, 50 launches" in ended.stdout


@pytest.mark.processes
def test_synthetic_files_stay_synthetic(assay: Assay, tmp_path: Path, virtual_files: list[Path]) -> None:
    ended = assay(
        "import", *virtual_files, "--workload", "w", "--device", "V100", "--state", tmp_path / "s", "--json"
    )
    assert ended.code == 0
    assert json.loads(ended.stdout)["campaign"]["synthetic"] is True


def test_a_file_of_a_virtual_gpu_is_known_to_be_synthetic(assay: Assay, virtual_files: list[Path]) -> None:
    for path in virtual_files:
        ended = assay("select", "random", path, "--param", "launches=5", "--json")
        assert ended.code == 0
        assert json.loads(ended.stdout)["profile"]["synthetic"] is True


def test_import_to_a_server(
    assay: Assay, server: FakeServer, script: Script, recordings: tuple[Path, Path]
) -> None:
    ended = assay(
        "import", *recordings, "--workload", "loop", "--device", "V100", "--server", server.address, "--json"
    )
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["campaign"]["runs"]
    (request,) = [r for r in script.requests if hasattr(r, "campaign_yaml")]
    campaign = load_campaign(request.campaign_yaml, request.file_name)
    (workload,) = campaign.workloads
    (recording,) = workload.recordings
    assert (workload.name, recording.device) == ("loop", "V100")
    assert (recording.detailed, recording.light) == tuple(map(str, recordings))


def test_the_campaign_is_valid_whatever_the_names(recordings: tuple[Path, Path]) -> None:
    run = recorded_run(recordings)
    condition = parse_condition(["cache=all,clock=base", "sm_percent=50"])
    text = campaign_text(run, workload="größe: [x] # \u2028", device="'RTX 2060'", condition=condition)
    campaign = load_campaign(text, "import.yaml")
    (workload,) = campaign.workloads
    assert (campaign.campaign, workload.name) == ("gr-e-x", "größe: [x] # \u2028")
    found = workload.recordings[0]
    assert found.device == "'RTX 2060'"
    assert (found.condition.cache, found.condition.clock, found.condition.sm_percent) == ("all", "base", 50.0)


@pytest.mark.parametrize(
    "condition", ["cache", "heat=on", "cache=all,cache=none", "sm_percent=half", "", "cache=all,"]
)
def test_conditions_that_cannot_be(condition: str) -> None:
    with pytest.raises(ParameterError):
        parse_condition([condition])


def test_what_is_refused_before_anything_runs(
    assay: Assay, tmp_path: Path, recordings: tuple[Path, Path], virtual_files: list[Path]
) -> None:
    detailed, light = recordings
    where = ("--workload", "w", "--device", "V100", "--state", tmp_path / "state")
    for code, arguments, said in (
        (2, [], "no file was given"),
        (2, [detailed, detailed], "are both detailed recordings"),
        (2, ["--light", detailed], "is a detailed recording"),
        (2, [light, "--server", "127.0.0.1:1"], "it cannot be combined with --server"),
        (3, [tmp_path / "nope"], "there is no such file"),
        (7, [virtual_files[0], light], "the other recording is measured"),
    ):
        ended = assay("import", *arguments, *where)
        assert (ended.code, said in ended.stderr) == (code, True), (arguments, ended.stderr)
    assert not (tmp_path / "state").exists()


def test_every_format_that_is_read_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "recordings.md").read_text()
    for reader in [*READERS, NsysParquetReader()]:
        assert f"| `{reader.format}` |" in page
    assert page.count(SYNTHETIC_MARK) == 3


@pytest.mark.parametrize(
    ("kind", "refusal"),
    [
        ("V1000", (2, "no known GPU is called 'V1000'; did you mean 'Tesla V100-SXM2-16GB'?")),
        ("banana", (2, "no known GPU is called 'banana'")),
        ("", (2, "--device")),
        ("RTX", (2, "--device")),
        ("A100", (7, "'A100' is given")),
        ("V100-SXM2-32GB", (7, "recorded on Tesla V100-SXM2-16GB")),
    ],
)
def test_a_device_that_nobody_knows_or_the_file_denies_is_refused(
    assay: Assay, tmp_path: Path, recordings: tuple[Path, Path], kind: str, refusal: tuple[int, str]
) -> None:
    code, said = refusal
    state = tmp_path / "state"
    ended = assay("import", *recordings, "--workload", "w", "--device", kind, "--state", state)
    assert (ended.code, ended.stdout) == (code, "")
    assert said in ended.stderr
    assert not state.exists()


def test_a_device_is_known_by_its_name_its_family_and_by_the_file(tmp_path: Path) -> None:
    new = ("NVIDIA B999", 12, 9, 200)
    for gpu, kinds in (
        (hand_made.V100, ("V100", "v100-sxm2-16gb", "Tesla V100-SXM2-16GB", "virtual V100")),
        (hand_made.A100, ("A100", "NVIDIA A100-SXM4-40GB")),
        (new, ("B999", "nvidia b999")),
        (None, ("V100", "RTX 3070", "RTX 3070 Ti", "H100", "GTX 1060")),
    ):
        run = recorded_run([hand_made.write_kineto(tmp_path / "light.json", gpu=gpu)])
        for kind in kinds:
            check_kind(kind, run)
    for kind, meant in (
        ("RTX3070", "RTX 3070"),
        ("H10", None),
        ("A100 SXM4 80GB", "A100-SXM4-80GB"),
        ("RTX 307", "RTX 3070"),
    ):
        with pytest.raises(ParameterError, match=meant or "no known GPU is called"):
            check_kind(kind, run)
