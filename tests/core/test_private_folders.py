"""Folders that nobody else can change: recognised, made, tightened."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.files.private_folders import (
    make_private_folder,
    private_opener,
    take_state_folder,
    why_not_ours,
)
from assay_sampling.errors import StorageError

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make folders of another user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp: everybody writes, and nobody removes what is another's. Not under a private one."""
    folder = Path(tempfile.mkdtemp(prefix="assay-shared-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_of_ours_in_a_shared_one_is_ours(shared: Path) -> None:
    ours = shared / "ours"
    make_private_folder(ours)
    assert (mode(ours), why_not_ours(ours)) == (0o700, "")
    ours.chmod(0o755)  # others may look, and change nothing
    assert why_not_ours(ours) == ""


@pytest.mark.parametrize("open_mode", [0o777, 0o1777, 0o770, 0o702])
def test_a_folder_that_others_may_write_into_is_not(shared: Path, open_mode: int) -> None:
    ours = shared / "ours"
    ours.mkdir()
    ours.chmod(open_mode)
    assert why_not_ours(ours) == f"other users may write into {ours} (mode {open_mode:04o})"
    assert why_not_ours(shared).startswith("other users may write")


@pytest.mark.parametrize("open_mode", [0o777, 0o770])
def test_a_folder_whose_parent_others_may_change_is_not(shared: Path, open_mode: int) -> None:
    parent = shared / "parent"
    make_private_folder(parent / "ours")
    parent.chmod(open_mode)  # not sticky: they can give the name to a folder of theirs
    assert why_not_ours(parent / "ours").startswith(f"other users may write into {parent}")


def test_what_lies_in_a_closed_folder_is_out_of_reach(shared: Path) -> None:
    inner = shared / "closed" / "open"
    make_private_folder(inner)
    inner.chmod(0o777)
    assert why_not_ours(inner) == ""


@pytest.mark.parametrize("target", ["{shared}/open", "../open"])
def test_a_link_leads_out_of_a_closed_folder(shared: Path, target: str) -> None:
    """``~/scratch`` in a home of mode 0700: what it leads to is as open as it is for everybody else."""
    home, opened = shared / "home", shared / "open"
    make_private_folder(home / "deep")
    make_private_folder(opened / "mine")
    opened.chmod(0o777)
    (home / "scratch").symlink_to(target.format(shared=shared))
    for place in (home / "scratch", home / "scratch" / "mine"):
        assert why_not_ours(place) == f"other users may write into {opened} (mode 0777)"
    (opened / "back").symlink_to(home / "deep")
    assert why_not_ours(home / "scratch" / "back").startswith("other users may write")
    assert why_not_ours(home / "deep") == ""


@needs_root
def test_a_folder_of_another_user_is_not_ours_whatever_its_mode(shared: Path) -> None:
    theirs = shared / "theirs"
    make_private_folder(theirs / "inner")
    os.chown(theirs, NOBODY, NOBODY)
    assert why_not_ours(theirs).startswith(f"{theirs} belongs to user ")
    assert why_not_ours(theirs / "inner").startswith(f"{theirs} belongs to user ")


@needs_root
def test_a_link_of_another_user_is_not_followed(shared: Path) -> None:
    ours = shared / "ours"
    make_private_folder(ours)
    link = shared / "link"
    link.symlink_to(ours)
    assert why_not_ours(link) == ""
    os.lchown(link, NOBODY, NOBODY)
    assert why_not_ours(link).startswith(f"{link} belongs to user ")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="more than 40 links"):
        why_not_ours(tmp_path / "a" / "x")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_what_is_made_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        make_private_folder(tmp_path / "a" / "b")
        with open(tmp_path / "a" / "b" / "f", "wb", opener=private_opener):
            pass
    finally:
        os.umask(before)
    assert [mode(tmp_path / p) for p in ("a", "a/b", "a/b/f")] == [0o700, 0o700, 0o600]


def test_a_state_folder_of_earlier_releases_is_tightened_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = tmp_path / "state"
    (state / "records" / "run").mkdir(parents=True)
    for path in (state / "metadata.sqlite", state / "records" / "run" / "slice.parquet", state / "tool"):
        path.write_text("x")
        path.chmod(0o644)
    (state / "tool").chmod(0o755)
    (state / "link").symlink_to("/etc/passwd")
    for folder in (state, state / "records", state / "records" / "run"):
        folder.chmod(0o755)
    passwd = mode(Path("/etc/passwd"))
    with caplog.at_level(logging.WARNING):
        take_state_folder(state)
    found = [path for path in (state, *state.rglob("*")) if not path.is_symlink()]
    assert {str(path.relative_to(tmp_path)): mode(path) for path in found} == {
        "state": 0o700, "state/metadata.sqlite": 0o600, "state/records": 0o700, "state/records/run": 0o700,
        "state/records/run/slice.parquet": 0o600, "state/tool": 0o700,
    }  # fmt: skip
    assert mode(Path("/etc/passwd")) == passwd
    assert [r.message for r in caplog.records] == [
        f"state folder {state} was open to other users (mode 0755): it is 0700 now",
        f"closed 5 files and folders in {state} that were open to other users",
    ]
    caplog.clear()
    take_state_folder(state)
    assert caplog.records == []


@needs_root
def test_a_state_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, NOBODY, NOBODY)
    with pytest.raises(StorageError, match=r"it belongs to user .*, and this program runs as 'root'"):
        take_state_folder(state)
    ours = tmp_path / "ours"
    ours.mkdir()
    (tmp_path / "link").symlink_to(ours)
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    with pytest.raises(StorageError, match="it belongs to user"):
        take_state_folder(tmp_path / "link")
