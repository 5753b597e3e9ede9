"""The calls of a loan: their arguments, the first one's looks, and what is tried again."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tarfile
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import carry, first_call, looks, plan
from tests.gpu.__main__ import _parsed
from tests.gpu.first_call import Ending, Step, made, pack, steps
from tests.gpu.proof import not_proved_in
from tests.support.integration.harness import wait_until
from tests.support.server.campaign_files import load_campaign
from tests.support.tracer.traced_runs import BuiltTracer

pytest_plugins = ["tests.tracer.conftest"]


def test_every_call_has_its_limit_and_parts_that_there_are() -> None:
    assert list(carry.CALLS) == ["A", "B", "C", "D"]
    limits = {}
    for name, (module, words) in carry.CALLS.items():
        limits[name] = next(float(w.partition("=")[2]) for w in words if w.startswith("--time-limit="))
        if module == "tests.gpu":
            _parsed(words)
    assert limits == {"A": 360.0, "B": 560.0, "C": 560.0, "D": 560.0}
    assert _parsed(carry.CALLS["B"][1]).workloads[0] == plan.SHORT_KERNELS
    preset = carry.CALLS["C"][1]
    assert carry._without_given(preset, ["--part", "torch", "--repeats=3"]) == [
        word for word in preset if not word.startswith(("--part", "--repeats"))
    ]


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "limits", "state", "said"),
    [
        (python("print('seen')"), (20.0, 20.0), "done", "seen\n"),
        (python("print('seen'); raise SystemExit(3)"), (20.0, 20.0), "failed", "seen\n"),
        (("no-such-tool",), (20.0, 20.0), "missing", "No such file"),
        (python("import time; print('begun', flush=True); time.sleep(60)"), (1.0, 20.0), "cut", "begun\n"),
        (python("import time; print('begun', flush=True); time.sleep(60)"), (60.0, 1.2), "cut", "begun\n"),
        (python("print('seen')"), (20.0, 0.5), "not begun", None),
    ],
)
def test_a_look_ends_as_it_ends_within_its_limit(
    command: Sequence[str], limits: tuple[float, float], state: str, said: str | None, tmp_path: Path
) -> None:
    began = time.monotonic()
    ending = made(Step("a look", limits[0], tuple(command)), tmp_path, limits[1])
    assert (ending.state, time.monotonic() - began < 10) == (state, True)
    assert ending.exit_status == {"done": 0, "failed": 3}.get(state)
    if said is None:
        assert not (tmp_path / "a look.txt").exists()
    else:
        assert said in (tmp_path / "a look.txt").read_text()


@pytest.mark.processes
def test_what_a_look_started_ends_with_it(tmp_path: Path) -> None:
    code = "import subprocess, time; print(subprocess.Popen(['sleep', '90']).pid, flush=True); time.sleep(90)"
    assert made(Step("parent", 1.0, python(code)), tmp_path, 20.0).state == "cut"
    child = int((tmp_path / "parent.txt").read_text())
    wait_until(lambda: not _lives(child), "the end of what the look started", 20)


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.processes
def test_the_first_call_makes_every_look_and_keeps_what_each_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a box without a GPU most looks fail, and none keeps the next from being made."""
    monkeypatch.setattr(plan, "find_torch", lambda given: ("", "none here"))
    status = first_call.main(["--out", str(tmp_path), "--time-limit", "120", "--programs", str(tmp_path)])
    assert status == first_call.PARTLY
    [folder] = tmp_path.iterdir()
    endings = [Ending(**each) for each in json.loads((folder / "steps.json").read_text())]
    assert [each.name for each in endings] == [each.name for each in steps(tmp_path, "")]
    assert {"nvml", "nvidia-smi", "tracer saxpy", "ncu skips 900000", "mps 37 percent"} <= {
        each.name for each in endings
    }
    assert {each.state for each in endings} <= {"done", "failed", "missing"}
    assert "no PyTorch: none here" in capsys.readouterr().out
    with tarfile.open(folder / "first-call.tar.gz") as archive:
        assert {"steps.json", "nvml.txt", "tracer saxpy.txt"} <= set(archive.getnames())


def test_outputs_are_cut_and_frames_are_kept_while_they_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_call, "_MOST_KEPT_BYTES", 5)
    monkeypatch.setattr(first_call, "_MOST_FRAMES_BYTES", 8)
    found = tmp_path / "looks"
    found.mkdir()
    for name, content in (("a.frames.0", b"12345"), ("b.frames.0", b"67890"), ("nvml.txt", b"much too long")):
        (found / name).write_bytes(content)
    pack(found, [Ending("nvml", "done", 1.0, 0)], tmp_path / "x.tar.gz")
    with tarfile.open(tmp_path / "x.tar.gz") as archive:
        assert sorted(archive.getnames()) == ["a.frames.0", "nvml.txt", "steps.json"]
        said = archive.extractfile("nvml.txt")
        assert said is not None and said.read() == b"much "


def test_every_query_of_nvml_is_answered_or_named_and_nothing_is_set() -> None:
    class Memory(ctypes.Structure):
        _fields_ = (("total", ctypes.c_ulong), ("used", ctypes.c_ulong))

    class RefusedError(Exception):
        value = 3

    asked: list[str] = []

    def refuse(handle: Any) -> None:
        asked.append("refuse")
        raise RefusedError("Not Supported")

    module = types.SimpleNamespace(
        nvmlDeviceGetName=lambda handle: b"GPU " + handle,
        nvmlDeviceGetMemoryInfo=lambda handle, version=None: Memory(8, 5),
        nvmlDeviceGetFanSpeed_v2=lambda handle, fan: asked.append("fan"),
        nvmlDeviceGetClock=refuse,
        nvmlSystemGetDriverVersion=lambda: "550",
        nvmlDeviceSetPersistenceMode=lambda handle: asked.append("set"),
    )
    assert dict(looks.nvml_answers(module, b"1")) == {
        "nvmlDeviceGetName": "GPU 1",
        "nvmlDeviceGetMemoryInfo": {"total": 8, "used": 5},
        "nvmlDeviceGetClock": {"error": 3, "says": "Not Supported"},
        "nvmlSystemGetDriverVersion": "550",
    }
    assert asked == ["refuse"]


@pytest.mark.processes
def test_the_tracers_frames_come_home_as_they_came(
    tracer: BuiltTracer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The rehearsal of the first call on the tracer's way: a CUPTI made up, and all that is sent."""
    monkeypatch.setenv("ASSAY_TRACER", str(tracer.library))
    keep = tmp_path / "w.frames"
    assert looks.look_at_frames(keep, [str(tracer.workload), "launches=500", "graphs=10"]) == 0
    [line] = [line for line in capfd.readouterr().out.splitlines() if '"records"' in line]
    found = json.loads(line)
    assert (found["problem"], found["records"]["launches"]) == ("", 500)
    # Fifty of the launches are graphs of four kernels.
    assert (found["records"]["kernels"], found["end"]["kernels"], found["end"]["graph_kernels"]) == (
        650, "450", "200",
    )  # fmt: skip
    assert (tmp_path / "w.frames.0").stat().st_size == found["bytes"]


def test_what_was_not_proved_is_tried_again(tmp_path: Path) -> None:
    for call, pairs in (("B", [["cuda", "chain"]]), ("C", [["torch", "lstm"], ["cuda", "chain"]])):
        (tmp_path / call).mkdir()
        (tmp_path / call / "claims.json").write_text(json.dumps({"not_proved": pairs}))
    assert not_proved_in(tmp_path) == [("cuda", "chain"), ("torch", "lstm")]
    assert not_proved_in(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("part", "light", "by_kineto"),
    [
        ("kineto", ("cupti",), True),
        ("torch", ("kineto",), True),
        ("torch", ("cupti",), False),
        ("cuda", ("cupti",), False),
    ],
)
def test_pytorch_traces_itself_where_nothing_else_can_and_beside_the_tracer(
    part: str, light: tuple[str, ...], by_kineto: bool, tmp_path: Path
) -> None:
    box = plan.Box("H100", synthetic=False, light=light)
    document = plan.campaign(part, plan.torch_part("/usr/bin/python3"), box, first=120, repeats=1)
    path = plan.write_campaign(tmp_path / "c.yaml", document)
    campaign = load_campaign(path.read_text(), str(path))
    files = {workload.kineto for workload in campaign.workloads}
    assert ("lstm.json.gz" in files, None in files) == (by_kineto, not by_kineto)
    assert os.environ.get("ASSAY_KINETO_FILE") is None
