"""Setting files aside when something comes between: a crash, a full disk, another file system."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay_core.records.campaign import SetAsideReason
from assay_sampling.errors import StorageError
from assay_server.store.quarantine_files import SetAsideFolder


class Crash(BaseException):
    """The process dies here."""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "records" / "run"
    folder.mkdir(parents=True)
    found = [folder / f"slice-0000{number}.parquet" for number in range(2)]
    for number, path in enumerate(found):
        path.write_bytes(b"x" * (number + 1))
        path.chmod(0o600)
    return found


def fail_at(
    monkeypatch: pytest.MonkeyPatch, number: int, error: Callable[[], BaseException], suffix: str = ".parquet"
) -> None:
    """Let the rename of this number of a file with such a name fail, and all later ones."""
    rename, done = Path.rename, [0]

    def failing(path: Path, target: Path) -> Path:
        if path.name.endswith(suffix):
            done[0] += 1
            if done[0] > number:
                raise error()
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing)


def test_after_a_crash_each_file_is_told_once_where_it_lies(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Crash):
        fail_at(patch, 1, Crash)
        SetAsideFolder(tmp_path).put(files, SetAsideReason.CHANGED)
    after = SetAsideFolder(tmp_path)
    assert [(len(each.names), each.file_bytes) for each in after.all()] == [(1, 1)]
    after.put([path for path in files if path.exists()], SetAsideReason.CHANGED)
    told = [Path(each.folder) / name for each in SetAsideFolder(tmp_path).all() for name in each.names]
    assert sorted(path.read_bytes() for path in told) == [b"x", b"xx"]


def test_a_folder_into_which_nothing_came_is_nothing_to_look_at(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Crash):
        fail_at(patch, 0, Crash)
        SetAsideFolder(tmp_path).put(files, SetAsideReason.CHANGED)
    assert SetAsideFolder(tmp_path).all() == []


def test_a_full_disk_leaves_the_files_and_no_empty_folders(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, 0, lambda: OSError(errno.ENOSPC, "No space left on device"))
    folder = SetAsideFolder(tmp_path)
    for _ in range(3):  # a service manager starts the server again and again
        with pytest.raises(StorageError, match="No space left"):
            folder.put(files, SetAsideReason.UNKNOWN)
    assert all(path.exists() for path in files)
    assert not list((tmp_path / "set-aside").iterdir())
    assert folder.all() == []


def test_files_of_another_file_system_are_copied(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where records is a link to a larger disk, or a disk of its own."""
    link = files[0].with_name("link.parquet")
    link.symlink_to("nowhere")
    fail_at(monkeypatch, 0, lambda: OSError(errno.EXDEV, "Invalid cross-device link"))
    moved = SetAsideFolder(tmp_path).put([*files, link], SetAsideReason.UNKNOWN)
    assert moved is not None
    assert not any(path.exists() or path.is_symlink() for path in (*files, link))
    lie = [Path(moved.folder) / name for name in moved.names]
    assert [p.readlink() if p.is_symlink() else p.read_bytes() for p in lie] == [Path("nowhere"), b"x", b"xx"]
    for path in Path(moved.folder).rglob("*"):
        assert path.is_symlink() or not os.lstat(path).st_mode & 0o077, path
    assert len(list(Path(moved.folder).rglob("*.*"))) == 4  # with the manifest, and nothing half copied
