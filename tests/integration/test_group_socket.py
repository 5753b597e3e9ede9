"""A server whose socket a group shares: members get in, strangers do not, and a planted socket is refused."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.integration.second_user import needs_second_user

pytestmark = [pytest.mark.processes, needs_second_user]

# No user or group of the machine has these numbers; programs take numbers for names.
OWNER, MEMBER, STRANGER, GROUP = 64_201, 64_202, 64_203, 64_301
GROUPS = {OWNER: [GROUP], MEMBER: [GROUP], STRANGER: []}


# The other users need not be able to read the environment of the tests, so all is imported, and a server has
# run once, before the change of user.
BECOME = """
import importlib, os, pathlib, sys, tempfile
user, groups, program, *arguments = sys.argv[1:]
user, groups, sys.argv = int(user), [int(each) for each in groups.split(",") if each], [program, *arguments]
needed = {
    "assay": [
        "client.cli.main", "client.cli.verbs.lab.status", "client.cli.verbs.admin.audit",
        "client.remote.client"
    ],
    "assay-server": ["server.main", "server.cli.program", "core.health_probe"],
}[program]
main, *_ = [importlib.import_module(f"assay_{each}") for each in needed]
if program == "assay-server" and "--state" in arguments:
    from assay_server.app import Server, ServerSettings
    with tempfile.TemporaryDirectory() as warm:
        with Server(ServerSettings(state_dir=pathlib.Path(warm), listen=(f"unix:{warm}/s",))):
            pass
os.setgroups(groups); os.setresgid(user, user, user); os.setresuid(user, user, user)
os.chdir("/"); os.umask(0)
sys.exit(main.main())
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp: everybody may write into it."""
    folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def start(user: int, program: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """A program of ours as another user."""
    who = [str(user), ",".join(map(str, GROUPS[user])), program]
    return subprocess.Popen(
        [sys.executable, "-c", BECOME, *who, *map(str, arguments)],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(user: int, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    with start(user, program, *arguments) as child:
        try:
            out, errors = child.communicate(timeout=120)
        finally:
            child.kill()
    return subprocess.CompletedProcess(child.args, child.returncode, out, errors)


@pytest.fixture
def address(shared: Path) -> Iterator[str]:
    """The address of a running server of OWNER that GROUP shares."""
    shown = f"unix:{shared}/lab/server.sock"
    arguments = ["--state", shared / "state", "--listen", shown, "--socket-group", str(GROUP)]
    with start(OWNER, "assay-server", *arguments) as server:
        try:
            assert server.stdout is not None and server.stderr is not None
            line = server.stdout.readline()
            assert line == f"listening on {shown}\n", line or server.stderr.read()
            yield shown
        finally:
            server.kill()


def test_a_member_gets_in_as_the_owner_and_a_stranger_does_not(shared: Path, address: str) -> None:
    folder, path = shared / "lab", shared / "lab" / "server.sock"
    modes = [(stat.S_IMODE(each.lstat().st_mode), each.stat().st_uid, each.stat().st_gid)
             for each in (folder, path)]  # fmt: skip
    assert modes == [(0o2770, OWNER, GROUP), (0o660, OWNER, GROUP)]

    known = ended(
        MEMBER, "assay", "--socket-owner", str(OWNER), "admin", "audit", "--server", address, "--json"
    )
    assert known.returncode == 0, known.stderr  # which only admins read
    assert "entries" in json.loads(known.stdout)
    health = ended(MEMBER, "assay-server", "health", address, "--socket-owner", str(OWNER))
    assert health.returncode == 0, health.stderr

    untold = ended(MEMBER, "assay", "lab", "status", "--server", address)
    assert untold.returncode == 5
    assert f"{folder} belongs to user {OWNER}" in untold.stderr
    assert f"--socket-owner {OWNER}, or ASSAY_SOCKET_OWNER={OWNER}" in untold.stderr
    other = ended(MEMBER, "assay", "--socket-owner", str(STRANGER), "lab", "status", "--server", address)
    assert (other.returncode, f"belongs to user {OWNER}, not {STRANGER}" in other.stderr) == (5, True)

    stranger = ended(STRANGER, "assay", "--socket-owner", str(OWNER), "lab", "status", "--server", address)
    assert (stranger.returncode, "Permission denied" in stranger.stderr) == (5, True)


@pytest.mark.parametrize("planted_by", [MEMBER, STRANGER])
def test_a_socket_that_another_user_planted_is_refused(shared: Path, planted_by: int) -> None:
    """By a member in the group's folder, or by anybody in one that everybody may write into."""
    folder = shared / "lab"
    folder.mkdir()
    os.chown(folder, OWNER, GROUP)
    folder.chmod(0o2770 if planted_by == MEMBER else 0o777)
    with socket.socket(socket.AF_UNIX) as planted:
        planted.bind(str(folder / "server.sock"))
        planted.listen()
        os.chown(folder / "server.sock", planted_by, GROUP)
        (folder / "server.sock").chmod(0o777)
        address = f"unix:{folder}/server.sock"
        why = (
            f"the socket there belongs to user {MEMBER}"
            if planted_by == MEMBER
            else f"every user may write into {folder}"
        )
        refused = ended(MEMBER, "assay", "--socket-owner", str(OWNER), "lab", "status", "--server", address)
        assert (refused.returncode, why in refused.stderr) == (5, True), refused.stderr
        # Nor does the server take its place, or listen in a folder that everybody may write into.
        server = ended(
            OWNER, "assay-server", "--state", shared / "state", "--listen", address, "--socket-group",
            str(GROUP),
        )  # fmt: skip
        assert (server.returncode, why in server.stderr) == (2, True)


def test_who_is_not_of_the_group_cannot_share_a_socket_with_it(shared: Path) -> None:
    arguments = [
        "--state",
        shared / "state",
        "--listen",
        f"unix:{shared}/lab/s",
        "--socket-group",
        str(GROUP),
    ]
    refused = ended(STRANGER, "assay-server", *arguments)
    assert refused.returncode == 2
    assert f"this user may not make it one of group {GROUP}" in refused.stderr
    assert not (shared / "lab").exists()
