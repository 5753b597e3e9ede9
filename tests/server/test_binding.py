"""The folder of a socket that a group shares: made, checked, and refused when others could change it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay_sampling.errors import ParameterError
from assay_server.config import ServerSettings
from assay_server.rpc.binding import group_called, take_group_folder

OTHER_GROUP = 64_301


def facts(folder: Path) -> tuple[int, int, int]:
    state = folder.stat()
    return state.st_mode & 0o7777, state.st_uid, state.st_gid


def refusal(folder: Path, group: int) -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        take_group_folder(folder, group)
    return caught.value


def test_it_is_made_for_the_group_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o777)
    try:
        take_group_folder(tmp_path / "lab", os.getegid())
    finally:
        os.umask(before)
    assert facts(tmp_path / "lab") == (0o2770, os.geteuid(), os.getegid())
    take_group_folder(tmp_path / "lab", os.getegid())


@pytest.mark.parametrize("mode", [0o2770, 0o770, 0o2750, 0o750, 0o700, 0o755, 0o2775, 0o777])
def test_one_that_is_there_keeps_its_mode_or_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "lab"
    folder.mkdir()
    folder.chmod(mode)
    if mode in {0o2770, 0o770, 0o2750, 0o750}:
        take_group_folder(folder, os.getegid())
    else:
        told = refusal(folder, os.getegid())
        assert f"chmod 2770 {folder}" in told.remedy
        assert f"mode {mode:04o}" in told.cause
    assert facts(folder)[0] == mode


def test_one_of_another_group_or_behind_a_link_is_refused(tmp_path: Path) -> None:
    take_group_folder(tmp_path / "lab", os.getegid())
    assert f"of group {os.getegid()}, not {OTHER_GROUP}" in refusal(tmp_path / "lab", OTHER_GROUP).cause
    (tmp_path / "link").symlink_to(tmp_path / "lab")
    assert "is a link" in refusal(tmp_path / "link", os.getegid()).cause
    assert "make the folder that it is in" in refusal(tmp_path / "none" / "lab", os.getegid()).remedy


def test_the_folder_of_this_users_own_socket_stays_this_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert "give --listen unix:PATH" in refusal(tmp_path / "assay", os.getegid()).remedy
    assert not (tmp_path / "assay").exists()


def test_a_group_has_a_name_or_a_number() -> None:
    assert (group_called("root"), group_called("64301")) == (0, 64_301)
    with pytest.raises(ParameterError, match=r"no group 'no-such-group'.*groupadd"):
        group_called("no-such-group")
    with pytest.raises(ParameterError, match="the server has no socket"):
        ServerSettings(state_dir=Path("s"), listen=("127.0.0.1:0",), socket_group="root")
