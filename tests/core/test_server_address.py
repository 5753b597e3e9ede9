"""What an address is, which are on this machine, and where a socket can be believed."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay_core.server_address import (
    default_address,
    is_loopback,
    parse_address,
    require_our_socket,
    runtime_folder,
)
from assay_sampling.errors import ParameterError


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"]
)
def test_loopback_addresses_and_exactly_localhost_are_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "127.attacker.example", "127.0.0.1.example", "127.1", "0127.0.0.1", "LOCALHOST", "localhost.", "",
        "localhost.example", "0.0.0.0", "10.0.0.1", "::1%lo", "::2", "127.0.0.1\n", " 127.0.0.1", "[::1]",
        "::ffff:10.0.0.1", "::ffff:127.0.0.1%lo",
    ],
)  # fmt: skip
def test_what_only_looks_like_loopback_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("127.0.0.1:1", "127.0.0.1", 1), ("[::1]:7170", "::1", 7170), ("gpu.lab:65535", "gpu.lab", 65535)],
)
def test_a_host_and_a_port(text: str, host: str, port: int) -> None:
    found = parse_address(text)
    assert (found.text, found.host, found.port, found.socket) == (text, host, port, None)


def test_port_0_only_where_any_is_meant() -> None:
    assert parse_address("127.0.0.1:0", any_port=True).port == 0
    with pytest.raises(ParameterError, match="is not an address"):
        parse_address("127.0.0.1:0")


@pytest.mark.parametrize(
    "text",
    [
        "", "7170", ":7170", "host:", "host:port", "::1:7170", "[::1]", "a b:1", "h:1\n",
        "::1:80", "dns:///127.0.0.1:80", "unix-abstract:x",
        "[localhost]:80", "[127.0.0.1]:80",
    ],
)  # fmt: skip
def test_what_is_not_an_address(text: str) -> None:
    with pytest.raises(ParameterError, match=r"--server: .* is not an address; give HOST:PORT or unix:PATH"):
        parse_address(text, "--server")


def test_a_port_above_65535_is_named() -> None:
    with pytest.raises(ParameterError, match=r"--server: .*65536"):
        parse_address("host:65536", "--server")


def test_sockets_are_absolute_and_as_grpc_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_address("unix:a/../s.sock").socket == tmp_path / "s.sock"
    assert parse_address("unix:///run/s").text == "unix:/run/s"
    for text in ("unix:", "unix://", "unix://host/s", "unix:/s\0"):
        with pytest.raises(ParameterError, match="does not name a socket"):
            parse_address(text)
    for text in ("unix:/run/s%20", "unix:/run/a?b", "unix:/run/a#b", "unix:/run/[x]", "unix:/run/a\nb"):
        with pytest.raises(ParameterError, match="mean something else to gRPC"):
            parse_address(text)


def test_a_path_that_no_socket_can_have_is_said_with_its_length() -> None:
    longest = "/" + "x" * 106
    assert parse_address(f"unix:{longest}").socket == Path(longest)
    with pytest.raises(
        ParameterError, match=r"has 108 bytes, and a socket's has at most 107; give a shorter"
    ):
        parse_address(f"unix:{longest}x")
    with pytest.raises(ParameterError, match="has 109 bytes"):
        parse_address("unix:/" + "ü" * 54)


def test_a_path_is_utf8_for_grpc_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    escaped = "größe".encode().decode("ascii", "surrogateescape")
    for text in ("unix:/run/größe", f"unix:/run/{escaped}"):
        address = parse_address(text)
        assert (address.text, address.socket) == ("unix:/run/größe", Path("/run/größe"))
    with pytest.raises(ParameterError, match="is not UTF-8"):
        parse_address("unix:/run/\ud800")
    monkeypatch.setattr("os.fsdecode", lambda data: data.decode("ascii", "surrogateescape"))
    monkeypatch.setattr("os.fsencode", lambda path: str(path).encode("ascii", "surrogateescape"))
    address = parse_address("unix:/run/größe")
    assert (address.text, address.socket) == ("unix:/run/größe", Path(f"/run/{escaped}"))


def test_the_default_is_in_the_users_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_address() == f"unix:{tmp_path}/assay/server.sock"
    require_our_socket(parse_address(default_address()))
    assert (tmp_path / "assay").stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("given", ["", "relative", "/no/such/folder"])
def test_a_runtime_folder_that_is_none_is_passed_over(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", given)
    user = os.geteuid()
    assert str(runtime_folder()) in (f"/run/user/{user}/assay", f"/tmp/assay-{user}")


def test_the_runtime_folder_of_another_user_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``su`` leaves in the environment."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    assert not runtime_folder().is_relative_to(theirs)


def test_a_missing_folder_has_its_command(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=f"there is no folder {tmp_path}/none; make it: mkdir -m 700"):
        require_our_socket(parse_address(f"unix:{tmp_path}/none/s"))


def test_nothing_is_asked_of_tcp() -> None:
    require_our_socket(parse_address("127.0.0.1:1"))


OWNER, GROUP = 64_201, 64_301


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder of another user, which a group shares, in one like /tmp."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    shared = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))
    shared.chmod(0o1777)
    folder = shared / "lab"
    folder.mkdir()
    os.chown(folder, OWNER, GROUP)
    folder.chmod(0o2770)
    yield folder
    shutil.rmtree(shared)


def refusal(folder: Path, owner: str = "") -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        require_our_socket(parse_address(f"unix:{folder}/s"), owner=owner)
    return caught.value


def test_a_folder_of_another_user_is_trusted_only_by_that_users_name(theirs: Path) -> None:
    require_our_socket(parse_address(f"unix:{theirs}/s"), owner=str(OWNER))
    untold = refusal(theirs)
    assert f"{theirs} belongs to user {OWNER}, so another user" in untold.cause
    assert f"--socket-owner {OWNER}, or ASSAY_SOCKET_OWNER={OWNER}" in untold.remedy
    assert f"belongs to user {OWNER}, not {GROUP}" in refusal(theirs, str(GROUP)).cause
    assert "no user 'who-is-this'" in refusal(theirs, "who-is-this").cause


def test_the_owner_of_a_shared_folder_says_so_too(theirs: Path) -> None:
    os.chown(theirs, 0, GROUP)
    assert "--socket-owner root, or" in refusal(theirs).remedy
    require_our_socket(parse_address(f"unix:{theirs}/s"), owner="root")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o2772])
def test_a_folder_that_everybody_may_write_into_is_never_trusted(theirs: Path, mode: int) -> None:
    theirs.chmod(mode)
    told = refusal(theirs, str(OWNER))
    assert f"every user may write into {theirs} (mode {mode:04o})" in told.cause
    assert "--socket-owner" not in refusal(theirs).remedy


def test_no_link_leads_to_a_trusted_folder_and_nobody_else_owns_or_opens_what_it_is_in(theirs: Path) -> None:
    link = theirs.parent / "link"
    link.symlink_to(theirs)
    assert f"{link} is a link" in refusal(link, str(OWNER)).cause
    theirs.parent.chmod(0o777)  # not sticky: anybody may put another folder in its place
    assert f"other users may write into {theirs.parent}" in refusal(theirs, str(OWNER)).cause
    theirs.parent.chmod(0o755)
    os.chown(theirs.parent, GROUP, GROUP)
    assert f"{theirs.parent} belongs to user {GROUP}" in refusal(theirs, str(OWNER)).cause


def test_what_a_member_puts_in_the_sockets_place_is_not_trusted(theirs: Path) -> None:
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(theirs / "s"))
        os.chown(theirs / "s", GROUP, GROUP)
        assert f"the socket there belongs to user {GROUP}" in refusal(theirs, str(OWNER)).cause
        os.chown(theirs / "s", OWNER, GROUP)
        require_our_socket(parse_address(f"unix:{theirs}/s"), owner=str(OWNER))
    (theirs / "s").unlink()
    (theirs / "s").symlink_to("elsewhere")
    assert f"{theirs}/s is not a socket" in refusal(theirs, str(OWNER)).cause
