"""A newcomer's surroundings: no home, a plain terminal, a narrow locale, odd and closed folders."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_client import places
from assay_client.local import require_usable
from assay_sampling.errors import StorageError
from tests.support.client import hand_made

Assay = Callable[..., Any]
PROGRAM = Path(sys.executable).with_name("assay")
PLAIN = {
    "PATH": f"{PROGRAM.parent}:/usr/bin:/bin",
    "TERM": "dumb",
    "NO_COLOR": "1",
    "COLUMNS": "80",
    "LC_ALL": "C",
}
UNFIT = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ODD = "Pfad mit größe"


def walk(folder: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command line as in a shell that has nothing."""
    return subprocess.run(
        [PROGRAM, *map(str, arguments)],
        cwd=folder,
        env={**PLAIN, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        encoding="utf-8",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an odd name, and recordings in it."""
    path = tmp_path / ODD
    path.mkdir()
    hand_made.write_raw_page(path / "window.csv", 60)
    hand_made.write_kineto(path / "training.json", 100)
    return path


def write_campaign(folder: Path) -> Path:
    path = folder / "mine.yaml"
    path.write_text(
        "campaign: mine\nworkloads:\n  - name: größe\n    recordings:\n"
        "      - {device: V100, light: training.json}\nanalysis: {methods: [systematic]}\n"
    )
    return path


@pytest.mark.processes
def test_the_way_from_a_campaign_to_its_report_in_a_plain_shell(folder: Path) -> None:
    home = folder.parent / "heim ü"
    home.mkdir()
    campaign = write_campaign(folder)
    ended = walk(folder, "run", campaign.name, HOME=str(home))
    assert ended.returncode == 0, ended.stderr
    page = home / ".local" / "state" / "assay" / "local" / "reports" / "mine-1" / "report.html"
    assert f"report: {page}" in ended.stdout
    assert "größe" in ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr
    # That report is on this machine; a server has none.
    asked = walk(folder, "report", "mine-1", "--server", "unix:/nowhere", HOME=str(home))
    assert asked.returncode == 5
    assert (
        f"the report of 'assay run' needs no server: {page}, or assay report mine-1 --state " in asked.stderr
    )
    assert list(folder.glob(".assay")) == []


@pytest.mark.processes
def test_without_a_home_the_state_is_in_this_folder_and_never_at_the_root(folder: Path) -> None:
    write_campaign(folder)
    ended = walk(folder, "run", "mine.yaml", "--json", HOME="")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["files"]["html"] == str(
        folder / ".assay" / "reports" / "mine-1" / "report.html"
    )


@pytest.mark.processes
def test_a_locale_that_cannot_name_a_folder_is_told_before_anything_runs(folder: Path) -> None:
    write_campaign(folder)
    ended = walk(folder, "run", "mine.yaml", "--state", folder.parent / "state", HOME=str(folder), **UNFIT)
    assert (ended.returncode, ended.stdout) == (8, "")
    assert (
        "this locale (ascii) lacks characters of its name; use one in UTF-8: LC_ALL=C.UTF-8" in ended.stderr
    )
    assert not (folder.parent / "state" / "server").exists()


def test_what_init_says_next_can_be_pasted(assay: Assay, folder: Path) -> None:
    ended = assay("init", folder / "mein plan.yaml")
    following = ended.stdout.splitlines()[-1].removeprefix("next: ")
    program, *words = shlex.split(following)
    assert (program, words) == ("assay", ["plan", str(folder / "mein plan.yaml")])
    assert assay(*words).code == 0


def test_the_state_folder_of_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    for found in (places.default_state_directory(), places.likely_state_directory()):
        assert found == tmp_path / ".assay"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    usual = tmp_path / "home" / ".local" / "state" / "assay" / "local"
    assert places.likely_state_directory() == usual
    # Looking makes nothing.
    assert list(tmp_path.iterdir()) == []
    assert places.default_state_directory() == usual
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert places.likely_state_directory() == tmp_path / "state" / "assay" / "local"


def test_a_home_that_cannot_be_written_to_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").touch()
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for found in (places.default_state_directory(), places.likely_state_directory()):
        assert found == tmp_path / ".assay"


def test_a_state_folder_that_is_refused_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="name another folder with --state"):
        require_usable(tmp_path / "file" / "state")


def test_a_state_folder_with_a_colon_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """Tools of virtual GPUs, and what the agent puts in front of a workload's PATH, lie below it."""
    with pytest.raises(StorageError, match="its path has ':', which separates folders in PATH"):
        require_usable(tmp_path / "12:30")
    assert not (tmp_path / "12:30").exists()


def test_a_client_needs_no_folder_to_write_to_where_it_stands(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed, home = tmp_path / "closed", tmp_path / "home"
    closed.mkdir()
    home.mkdir()
    monkeypatch.chdir(closed)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    access = os.access

    def refused(path: Path, mode: int) -> bool:
        return bool(mode & os.W_OK) and Path(path).resolve() == closed

    monkeypatch.setattr(
        os, "access", lambda path, mode, **more: not refused(path, mode) and access(path, mode, **more)
    )
    nowhere = ("--server", f"unix:{tmp_path}/none", "--json")
    assert assay("doctor", "--for", "client", *nowhere).code == 0
    assert "state folder" in json.loads(assay("doctor", "--for", "agent", *nowhere).stdout)["missing"]
    assert list(home.iterdir()) == []


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["init", "here.yaml"], "name another file"),
        (["select", "pks", "window.csv", "-o", "s.json"], "name another file"),
        (["run", "mine.yaml"], "--state"),
        (["import", "training.json", "--workload", "w", "--device", "V100"], "--state"),
        (["demo"], "--out"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_closed_folder_names_the_way_out(folder: Path, arguments: list[str], remedy: str) -> None:
    write_campaign(folder)
    folder.chmod(0o555)
    try:
        ended = walk(folder, *arguments, HOME="/nonexistent")
    finally:
        folder.chmod(0o755)
    assert ended.returncode == 8
    error = ended.stderr.splitlines()[-1]
    assert error.startswith("error: ")
    assert remedy in error


def on_a_terminal(command: list[str], **variables: str) -> str:
    """What a program shows on a terminal of 80 columns."""
    leader, follower = os.openpty()
    try:
        termios.tcsetwinsize(follower, (40, 80))
        with subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**PLAIN, "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", **variables},
        ):
            os.close(follower)
            follower = -1
            shown = b""
            # A terminal whose last program has gone gives an error, not an end.
            with contextlib.suppress(OSError):
                while piece := os.read(leader, 65536):
                    shown += piece
        return shown.decode().replace("\r\n", "\n")
    finally:
        os.close(leader)
        if follower >= 0:
            os.close(follower)


FOLLOW = """
import time
from assay_client.cli import progress
from assay_client.cli.follow import follow
progress.SHOWN_AFTER_SECONDS = 0.0
with progress.activity("reading gr\\u00f6\\u00dfe"):
    time.sleep(0.3)
status = {"campaign_id": "c-1", "state": "running", "runs_total": 2, "runs_failed": 0, "runs": [],
          "runs_running": 0, "runs_cancelled": 0, "runs_paused": 0, "paused": False, "gpu_hours": 0.0,
          "eta": {"remaining_ms": None}, "slices": 0, "slices_done": 0, "retries": 0, "waiting": [],
          "resting": []}
follow([{**status, "runs_done": done} for done in (0, 1)])
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    "variables", [{}, {"TERM": "xterm", "LC_ALL": "C", **UNFIT}], ids=["dumb", "narrow characters"]
)
def test_a_terminal_that_cannot_draw_a_bar_gets_lines(variables: dict[str, str]) -> None:
    shown = on_a_terminal([sys.executable, "-c", FOLLOW], **variables).splitlines()
    assert shown[0].startswith("reading gr") and shown[0].endswith("e ...")
    assert [line.startswith("c-1 running: ") for line in shown[1:]] == [True, True]
    assert "\x1b" not in "".join(shown)


@pytest.mark.processes
def test_a_terminal_that_can_draw_gets_the_bar() -> None:
    assert "\x1b" in on_a_terminal([sys.executable, "-c", FOLLOW], TERM="xterm")


@pytest.mark.processes
def test_a_page_on_a_plain_terminal_is_wrapped_and_marks_its_code() -> None:
    shown = on_a_terminal([str(PROGRAM), "docs", "failures"])
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "class: `permission`" in shown
