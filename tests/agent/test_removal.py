"""Folders that programs left are removed whatever they are, or the slot says what it could not remove."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_agent.execution.environment import MeasuredGPU, remove_old_jobs, workspace
from assay_agent.execution.errors import ProfilerError
from assay_agent.execution.removal import remove_tree
from assay_core.records.attempt import AttemptKey
from assay_core.records.work import Work
from assay_sampling.running.failures import FailureClass, Fault
from assay_sampling.running.identity import Device

WORK = Work(
    key=AttemptKey("c-1.0000", 0, 1, 1), campaign_id="c-1", workload="w", device_kind="V100",
    level="light", profiler="bare",
)  # fmt: skip


def dig(top: Path, depth: int, name: str = "d" * 100) -> None:
    """Nest folders deeper than any path can name."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def hostile_tree(top: Path) -> None:
    """What broke a box: deep folders inside folders named as the agent once named what it removed."""
    for number, depth in enumerate((1500, 2, 2)):
        inside = top / f".assay-removed-{number}" / "full"
        inside.mkdir(parents=True)
        dig(inside, depth)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MeasuredGPU:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return MeasuredGPU(Device(0, "V100", "GPU-1", "7.0", 80), "/usr/bin")


def test_a_tree_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    hostile_tree(top)
    (top / "link").symlink_to("/etc")
    (top / "closed").mkdir()
    (top / "closed" / "file").touch()
    (top / "closed").chmod(0)
    os.mkfifo(top / "pipe")
    remove_tree(top)
    assert not top.exists() and Path("/etc/passwd").exists()
    remove_tree(top)


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (tmp_path / "link").symlink_to(kept)
    remove_tree(tmp_path / "link")
    assert (kept / "file").exists() and not (tmp_path / "link").is_symlink()


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.sampled_from([0, 0o300, 0o777])
        ),
        max_size=12,
    )
)
def test_any_tree_of_any_modes_is_removed(
    tmp_path_factory: pytest.TempPathFactory, folders: list[tuple[list[str], int]]
) -> None:
    top = tmp_path_factory.mktemp("tree") / "top"
    made = [top.joinpath(*names) for names, _ in folders]
    for place in made:
        place.mkdir(parents=True, exist_ok=True)
        (place / "file").touch()
    for place, (_, mode) in sorted(zip(made, folders, strict=True), key=lambda item: -len(item[0].parts)):
        place.chmod(mode)
    remove_tree(top)
    assert not top.exists()


def test_a_run_that_left_a_hostile_tree_fails_nothing_and_leaves_nothing(
    tmp_path: Path, gpu: MeasuredGPU
) -> None:
    with workspace(gpu, tmp_path / "state", WORK, threading.Event()) as space:
        hostile_tree(space.job)
    assert not any(folder.exists() for folder in (space.home, space.temporary, space.job))


def test_an_agent_starts_beside_any_leftovers(tmp_path: Path) -> None:
    old = tmp_path / "jobs" / "old"
    old.mkdir(parents=True)
    hostile_tree(old)
    remove_old_jobs(tmp_path)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that its owner cannot remove")
def test_what_cannot_be_removed_rests_the_slot_and_keeps_no_agent_from_starting(
    tmp_path: Path, gpu: MeasuredGPU, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    with workspace(gpu, state, WORK, threading.Event()) as space:
        (space.home / "fixed").touch()
        if subprocess.run(["chattr", "+i", space.home / "fixed"], check=False).returncode:
            pytest.skip("this disk has no immutable files")
    # The run itself ended well: only the next one in this slot hears of it.
    assert "fixed" in caplog.text
    try:
        with pytest.raises(ProfilerError) as refused, workspace(gpu, state, WORK, threading.Event()):
            pass
        assert refused.value.failure_class is FailureClass.LEFTOVERS
        assert refused.value.failure_class.fault is Fault.BOX and "fixed" in str(refused.value)
        (state / "jobs").mkdir(exist_ok=True)
        (space.home).rename(state / "jobs" / "old")
        remove_old_jobs(state)
        assert (state / "jobs" / "old" / "fixed").exists()
    finally:
        subprocess.run(["chattr", "-R", "-i", str(tmp_path)], check=False)
