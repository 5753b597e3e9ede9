"""``run`` in one process, end to end, and campaigns that are not valid."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client.demonstration.processes import running_service
from assay_client.local import run_campaign
from assay_client.remote.client import Client
from assay_sampling.errors import AssayError, NotReadyError, StorageError
from tests.support.client import hand_made
from tests.support.client.demo_kills import hearing_interrupts

pytestmark = pytest.mark.processes

Assay = Callable[..., Any]
PROGRAM = Path(sys.executable).with_name("assay")
CAMPAIGN = """\
campaign: by-hand
seed: 1
workloads:
  - name: loop
    recordings:
      - {device: V100, light: light.json, detailed: window.csv}
      - {device: A100, light: faster.json}
analysis:
  methods:
    - pks
    - systematic: {launches: 10}
"""
# Labels for the launches behind a window take a worker four seconds: one campaign has them.
WITHOUT_LABELS = CAMPAIGN.replace("- pks", "- stem")


def write_campaign(directory: Path, text: str = WITHOUT_LABELS) -> Path:
    """Two levels on one GPU, the light level on a second that is twice as fast."""
    hand_made.write_raw_page(directory / "window.csv", 60)
    hand_made.write_kineto(directory / "light.json", 100)
    hand_made.write_kineto(directory / "faster.json", 100, slower=0.5)
    path = directory / "campaign.yaml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def run_twice(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Two campaigns of one name in one state folder: as JSON into a folder of its own, then for people."""
    directory = tmp_path_factory.mktemp("run")
    first, second = (
        subprocess.run(
            [PROGRAM, "run", write_campaign(directory, text), "--state", directory / "state", *more],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        for text, more in ((CAMPAIGN, ["-o", directory / "out", "--json"]), (WITHOUT_LABELS, []))
    )
    return directory, first, second


@pytest.mark.xdist_group("run_twice")
def test_run_goes_the_whole_way_in_one_process(run_twice: tuple[Path, Any, Any]) -> None:
    directory, ended, _ = run_twice
    out = directory / "out"
    assert (ended.returncode, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert document["campaign"]["campaign_id"] == "by-hand-1"
    assert document["campaign"]["state"] == "done"
    assert [run["launches"] for run in document["campaign"]["runs"]] == [60, 100, 100]
    assert document["files"] == {"json": str(out / "report.json"), "html": str(out / "report.html")}
    assert json.loads((out / "report.json").read_bytes()) == document["report"]
    assert "<html" in (out / "report.html").read_text()
    check_rows(document["report"])


def check_rows(report: dict[str, Any]) -> None:
    rows = {(row["device"], row["method"]): row for row in report["rows"]}
    assert set(rows) == {(device, method) for device in ("V100", "A100") for method in ("pks", "systematic")}
    total_ns = sum(hand_made.NANOSECONDS[kind] for kind in hand_made.kinds(100))
    for (device, _), row in rows.items():
        assert row["status"] == "ok"
        assert row["launches"] == 100
        assert row["cost"]["unit"] == "ns"
        assert row["cost"]["total"] == pytest.approx(total_ns * (0.5 if device == "A100" else 1.0))
        assert row["selected_on"]["device"] == "V100"


@pytest.mark.xdist_group("run_twice")
def test_run_for_people_shows_the_table_and_where_the_page_is(run_twice: tuple[Path, Any, Any]) -> None:
    directory, _, ended = run_twice
    assert ended.returncode == 0
    page = directory / "state" / "reports" / "by-hand-2" / "report.html"
    assert f"report: {page}" in ended.stdout
    assert page.is_file()
    for text in ("Workload x GPU", "loop", "V100", "A100", "stem", "systematic"):
        assert text in ended.stdout, text
    assert ended.stderr.splitlines()[0] == "by-hand-1 is finished: this run starts over"
    assert ended.stderr.splitlines()[-1].startswith("by-hand-2 done: 3 of 3 runs done")


@pytest.mark.xdist_group("run_twice")
def test_run_keeps_what_server_and_agent_logged(run_twice: tuple[Path, Any, Any]) -> None:
    log = (run_twice[0] / "state" / "run.log").read_text()
    assert "assay_agent" in log
    assert "assay_server" in log


def test_a_run_that_failed_ends_with_6_and_the_others_are_reported(
    assay_process: Assay, tmp_path: Path
) -> None:
    campaign = write_campaign(tmp_path)
    whole = (tmp_path / "faster.json").read_bytes()
    (tmp_path / "faster.json").write_bytes(whole[: len(whole) // 2])
    ended = assay_process("run", campaign, "--state", tmp_path / "state", "--json")
    assert ended.code == 6
    error = json.loads(ended.stderr)["error"]
    assert error["type"] == "RunFailedError"
    assert "by-hand-1.0002" in error["subject"]
    assert "input_unreadable" in error["cause"]
    assert error["remedy"]
    rows = json.loads(ended.stdout)["report"]["rows"]
    assert {(row["device"], row["status"]) for row in rows} == {("V100", "ok")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CAMPAIGN.replace("device: V100", "devise: V100"), "campaign.yaml:6: field workloads[0]"),
        (CAMPAIGN.replace("seed: 1", "seed: [1"), "campaign.yaml:"),
    ],
    ids=["unknown key", "no YAML"],
)
def test_a_campaign_that_is_not_valid_is_one_paragraph_with_line_and_field(
    assay_process: Assay, tmp_path: Path, text: str, expected: str
) -> None:
    campaign = write_campaign(tmp_path)
    campaign.write_text(text)
    ended = assay_process("run", campaign, "--state", tmp_path / "state")
    assert (ended.code, ended.stdout) == (4, "")
    assert ended.stderr.startswith("error: ")
    assert ended.stderr.count("\n") == 1
    assert expected in ended.stderr


def test_a_campaign_that_is_not_there(assay_process: Assay, tmp_path: Path) -> None:
    ended = assay_process("run", tmp_path / "nope.yaml", "--state", tmp_path / "state")
    assert (ended.code, ended.stdout) == (4, "")
    assert "nope.yaml" in ended.stderr


def test_a_state_folder_that_cannot_be_made_is_a_storage_error(assay_process: Assay, tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path)
    (tmp_path / "file").write_text("")
    ended = assay_process("run", campaign, "--state", tmp_path / "file" / "state")
    assert (ended.code, ended.stdout) == (8, "")
    assert ended.stderr.count("\n") == 1


def test_a_terminated_run_leaves_its_campaign_to_the_next_one_and_no_process(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path)
    # In recorded time the launches take about 100 ms each: long enough to be interrupted.
    hand_made.write_kineto(tmp_path / "light.json", 100, slower=1e7)
    campaign.write_text(WITHOUT_LABELS + "playback: recorded_time\n")
    state = tmp_path / "state"
    process = subprocess.Popen(
        hearing_interrupts([PROGRAM, "run", campaign, "--state", state]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("by-hand-1 ")
    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM
    assert stdout == ""
    assert "Traceback" not in stderr
    assert "by-hand-1 is interrupted: run the same command again to continue" in stderr
    with running_service(state, tmp_path / "logs") as service:
        ended = subprocess.run(
            [PROGRAM, "lab", "status", "by-hand-1", "--json", "--server", service.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert json.loads(ended.stdout)["state"] == "running"


def test_an_agent_that_breaks_ends_the_run_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay_agent.daemon.agent import Agent  # noqa: PLC0415

    def broken(_: Agent) -> None:
        time.sleep(0.2)
        raise AssayError("agent", "it broke", "mend it")

    monkeypatch.setattr(Agent, "run", broken)
    with pytest.raises(AssayError, match="it broke"):
        run_campaign(write_campaign(tmp_path), tmp_path / "state")


def test_a_gpu_that_this_machine_has_not_ends_the_run_at_once(tmp_path: Path) -> None:
    campaign = tmp_path / "live.yaml"
    (tmp_path / "w.toml").touch()
    campaign.write_text(
        "campaign: live\nsynthetic: true\ngpus: [V100]\nworkloads: [{name: w, command: [./w.toml]}]\n"
    )
    with pytest.raises(NotReadyError) as caught:
        run_campaign(campaign, tmp_path / "state")
    assert caught.value.subject == "campaign live-1"
    assert "3 of 3 runs can never start here: no agent offers a synthetic V100" in caught.value.cause
    assert "assay lab submit" in caught.value.remedy
    with running_service(tmp_path / "state", tmp_path / "logs") as service, Client(service.address) as client:
        assert client.status("live-1")["state"] == "cancelled"


def test_a_disk_that_is_as_good_as_full_is_refused_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nearly_full = shutil.disk_usage(tmp_path)._replace(free=300_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: nearly_full)
    with pytest.raises(StorageError, match=r"the disk has 300,000 bytes left") as caught:
        run_campaign(write_campaign(tmp_path), tmp_path / "not yet" / "there")
    assert "--state" in caught.value.remedy
    assert not (tmp_path / "not yet").exists()


def test_a_program_that_does_not_come_up_is_told_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "server").write_text("in the way")
    with (
        pytest.raises(AssayError, match="assay-server: it ended at once"),
        running_service(tmp_path / "state", tmp_path / "logs", ["V100"]),
    ):
        pass
