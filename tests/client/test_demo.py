"""The demo over processes: what it ends with, and that no kill at any moment changes a byte of its report."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay_client.demonstration import bound
from assay_client.demonstration.demo import CAMPAIGN, NOTICE, _clear, _folder_lock, run_demo, without_numbers
from assay_client.pages import folder
from assay_report.model.report import REPORT_VERSION
from assay_report.reading import read_report
from assay_sampling.errors import AssayError, MisalignedError, StorageError
from tests.support.client.demo_kills import (
    MARKS,
    PROGRAM,
    Demo,
    kill_one,
    progress,
    small_campaign,
    wait_until_gone,
)

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("demo")]

WORKLOADS = ("one", "two")
SEED = 20_260
# Runs done when a demo is killed: while it measures, and in the analysis.
KILLED_AFTER = (7, 1_000_000)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_campaign(tmp_path_factory.mktemp("campaign"), WORKLOADS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, campaign: Path) -> tuple[Path, str, list[str]]:
    """A demo that nobody disturbs: its folder, what it printed, and its progress."""
    out = tmp_path_factory.mktemp("undisturbed")
    demo = Demo(out, campaign)
    printed = demo.end()
    return out, printed, demo.lines


def test_the_demo_ends_with_a_table_pages_and_honest_labels(
    undisturbed: tuple[Path, str, list[str]],
) -> None:
    out, printed, lines = undisturbed
    assert lines[0] == f"{NOTICE}\n"
    runs = 9 * len(WORKLOADS)
    assert lines[-1].startswith(f"small-1 done: {runs} of {runs} runs done")
    assert "synthetic: no silicon produced these data" in printed
    for heading in ("error", "speedup", "match", "accuracy", "flushed"):
        assert heading in printed, heading
    report = json.loads((out / "report.json").read_bytes())
    assert report["campaign"]["synthetic"] is True
    assert [(e["workload"], e["device"], e["status"]) for e in report["summary"]] == [
        (workload, gpu, "ok") for workload in WORKLOADS for gpu in ("V100", "RTX 2060", "RTX 3070")
    ]
    assert {run["synthetic"] for run in report["runs"]} == {True}
    labelled = [row["model"]["models"] for row in report["rows"] if row["model"]]
    assert {"sgd", "gaussian_nb", "mlp"} <= {model["name"] for models in labelled for model in models}
    for form in ("json", "html", "md"):
        path = out / f"report.{form}"
        assert str(path) in printed
        assert "synthetic" in path.read_text().lower()
    *_, page, served, heading, json_file, html_file, markdown = printed.splitlines()
    port = (out / "page-port").read_text().strip()
    assert page == f"page: http://127.0.0.1:{port}/"
    assert served == f"  serve it again with: assay demo --page --out {out}"
    assert [heading, json_file, html_file, markdown] == [
        "report, all of it synthetic:",
        *(f"  {out / name}" for name in ("report.json", "report.html", "report.md")),
    ]


def test_the_demo_leaves_no_process_behind(undisturbed: tuple[Path, str, list[str]]) -> None:
    assert wait_until_gone(undisturbed[0], 0.0) == []


def test_kills_of_every_child_are_mended_and_change_nothing(
    undisturbed: tuple[Path, str, list[str]], campaign: Path, tmp_path: Path
) -> None:
    """Server, each agent, tools and a tool's supervisor die at seeded moments; the demo starts them again."""
    moments = random.Random(SEED)
    victims = [*MARKS, "tool"]
    moments.shuffle(victims)
    demo = Demo(tmp_path / "out", campaign)
    for victim, done in zip(victims, sorted(moments.sample(range(13), len(victims))), strict=True):
        assert demo.wait(lambda line, done=done: progress(line) >= done), victim  # type: ignore[misc]
        assert kill_one(tmp_path / "out", victim), victim
    demo.end()
    told = [line for line in demo.lines if "restarting it" in line]
    assert sorted(line.split()[0] for line in told) == [
        "agent-RTX-2060", "agent-RTX-3070", "agent-V100", "assay-server"
    ]  # fmt: skip
    assert all("was killed by signal 9" in line for line in told)
    assert _pages(tmp_path / "out") == _pages(undisturbed[0])
    assert wait_until_gone(tmp_path / "out", 0.0) == []


def test_a_killed_demo_takes_everything_along_and_the_next_goes_on(
    undisturbed: tuple[Path, str, list[str]], campaign: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sockets: list[Path] = []
    for done in KILLED_AFTER:
        demo = Demo(out, campaign)
        assert demo.wait(lambda line, done=done: progress(line) >= done)  # type: ignore[misc]
        demo.kill()
        assert wait_until_gone(out) == []
        sockets.append(Path((out / "state" / "server" / "address").read_text().strip().removeprefix("unix:")))
    last = Demo(out, campaign)
    last.end()
    assert len(set(sockets)) == len(KILLED_AFTER) and not any(socket.parent.exists() for socket in sockets)
    assert "continuing small-1, which an earlier demo left\n" in last.lines
    assert _pages(out) == _pages(undisturbed[0])


def test_a_demo_that_was_killed_before_its_last_page_only_writes_it_and_json_is_one_document(
    undisturbed: tuple[Path, str, list[str]], campaign: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(undisturbed[0], out)
    (out / "report.md").unlink()
    ended = subprocess.run(
        [PROGRAM, "demo", "--out", out, "--campaign", campaign, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    document = json.loads(ended.stdout)
    assert (document["synthetic"], document["campaign"]["campaign_id"]) == (True, "small-1")
    assert document["report"] == json.loads((undisturbed[0] / "report.json").read_bytes())
    assert document["files"] == {
        "json": str(out / "report.json"),
        "html": str(out / "report.html"),
        "markdown": str(out / "report.md"),
    }
    assert _pages(out) == _pages(undisturbed[0])


def test_a_finished_demo_is_cleared_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "state" / "server").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    (tmp_path / "report-pictures").mkdir()
    (tmp_path / "mine.txt").write_text("not the demo's")
    for form in ("json", "html", "md"):
        (tmp_path / f"report.{form}").write_text("")
    _clear(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".cleared", "mine.txt"]


def test_a_finished_demo_says_that_it_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.md").write_text("")
    said: list[str] = []
    monkeypatch.setattr("assay_client.demonstration.demo._unpacked", _refused)
    with pytest.raises(StorageError):
        run_demo(tmp_path, follow=lambda _: {}, say=said.append)
    assert said == [f"the demo in {tmp_path} is finished: this one starts over there"]


def _refused(folder: Path) -> Path:
    raise StorageError(str(folder), "refused", "by a test")


def test_a_child_that_cannot_run_ends_the_demo_with_its_own_words(campaign: Path, tmp_path: Path) -> None:
    # The other agents have nothing to do meanwhile.
    of_one = tmp_path / "one"
    shutil.copytree(campaign.parent, of_one)
    text = campaign.read_text()
    assert "gpus: [V100, RTX 2060, RTX 3070]" in text
    alone = of_one / campaign.name
    alone.write_text(text.replace("gpus: [V100, RTX 2060, RTX 3070]", "gpus: [V100]"))
    out = tmp_path / "out"
    (out / "state").mkdir(parents=True)
    (out / "state" / "agent-V100").write_text("in the way")
    ended = subprocess.run(
        [PROGRAM, "demo", "--out", out, "--campaign", alone], capture_output=True, text=True, check=False
    )
    assert ended.returncode == StorageError.exit_code
    assert "agent-V100 ended with exit code" in ended.stderr
    assert "agent-V100: it exits soon after every start" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert wait_until_gone(out, 0.0) == []


def test_an_interrupted_demo_stops_its_processes_in_order(campaign: Path, tmp_path: Path) -> None:
    demo = Demo(tmp_path / "out", campaign)
    assert demo.wait(lambda line: progress(line) >= 0)
    assert demo.interrupt() == 130
    assert "Traceback" not in "".join(demo.lines)
    assert "interrupted: server and agents are stopped; the next demo there continues" in "".join(demo.lines)
    assert wait_until_gone(tmp_path / "out", 0.0) == []


def _pages(out: Path) -> dict[str, bytes]:
    return {form: (out / f"report.{form}").read_bytes() for form in ("json", "html", "md")}


def test_two_demos_in_one_folder_are_refused(tmp_path: Path) -> None:
    with _folder_lock(tmp_path / "out"):
        pass
    with (
        _folder_lock(tmp_path / "out"),
        pytest.raises(AssayError, match="another demo is running there"),
        _folder_lock(tmp_path / "out"),
    ):
        pass


def test_a_bound_program_dies_with_its_parent_however_that_ends() -> None:
    waits = f"""
import os, subprocess, sys, time
start = [sys.executable, "-I", "-S", {bound.__file__!r}, str(os.getpid())]
print(subprocess.Popen([*start, "/bin/sleep", "100"]).pid, flush=True)
time.sleep(100)
"""
    parent = subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    _wait(lambda: Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"/bin/sleep"))
    parent.kill()
    parent.communicate()
    try:
        _wait(lambda: _is_gone(child))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _wait(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)


def _is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_bound_program_is_not_started_where_the_parent_is_gone() -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", bound.__file__, "1", "/bin/echo", "started"],
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, b"")


def test_the_demos_campaign_is_the_example_of_the_checkout() -> None:
    checkout = Path(__file__).resolve().parents[2] / "campaigns"
    assert folder("campaigns") == checkout
    assert (checkout / CAMPAIGN).is_file()


def test_a_row_without_numbers_is_explained() -> None:
    error = MisalignedError("a and b", "only 98 % match", "record again", ("here", "there"))
    row = {"workload": "w", "device": "d", "status": "refused", "reason": error.text,
           "error": error.to_dict()}  # fmt: skip
    row |= {"condition": {}, "method": "pks"}
    campaign = {"id": "c-1", "synthetic": True, "seed": 0}
    report = read_report(
        {"format_version": REPORT_VERSION, "campaign": campaign, "summary": [row, {**row, "status": "ok"}]}
    )
    assert without_numbers(report) == ["w on d is refused: a and b: only 98 % match"]
