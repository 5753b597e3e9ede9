"""Another user of the machine: cannot reach the server, be the server, or become the agent's user."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.integration.harness import BIN
from tests.support.integration.second_user import NOBODY, as_nobody, needs_second_user, start_as_nobody

pytestmark = pytest.mark.processes

CONNECT = """
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print("connected")
except OSError as error:
    print(type(error).__name__)
"""
SUBMIT = """
text = pathlib.Path(sys.argv[2]).read_text()
with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = campaign_pb2_grpc.CampaignServiceStub(channel)
    request = campaign_pb2.SubmitRequest(campaign_yaml=text, base_directory="/")
    try:
        print(stub.Submit(request, timeout=50).campaign_id)
    except grpc.RpcError as error:
        print(error.code().name)
"""
LISTEN_BEFORE_YOU = """
place = pathlib.Path(sys.argv[1])
place.parent.mkdir(mode=0o700, exist_ok=True)
taken = socket.socket(socket.AF_UNIX); taken.bind(str(place)); taken.listen()
os.chmod(place, 0o777)
if os.stat(place.parent).st_uid == os.getuid(): os.chmod(place.parent, 0o777)
print("taken", flush=True)
sys.stdin.readline()
"""
# On a virtual GPU a workload that traces itself is really run: no GPU is needed to be attacked.
ATTACK = """\
campaign: attack
synthetic: true
gpus: [V100]
detailed: {first: 20, sets: features}
workloads:
  - {name: w, command: [/bin/sh, -c, "id -u > VICTIM"], kineto: x.json}
"""


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder like /tmp: everybody may write into it."""
    folder = Path(tempfile.mkdtemp(prefix="assay-", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def program(
    name: str, *arguments: str | Path, runtime: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program of ours under the umask of a careless administrator."""
    child = subprocess.Popen(
        [BIN / name, *map(str, arguments)],
        env=surroundings(runtime),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=0,
        start_new_session=True,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def surroundings(runtime: Path | None) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "ASSAY_SERVER"}
    return environment | ({"XDG_RUNTIME_DIR": str(runtime)} if runtime else {})


def ended(name: str, *arguments: str | Path, runtime: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / name, *map(str, arguments)],
        env=surroundings(runtime),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@needs_second_user
def test_by_default_all_programs_meet_where_nobody_else_can_connect(shared: Path) -> None:
    """The runtime folder itself is open to all here: what protects the socket is ours."""
    runtime = shared / "runtime"
    runtime.mkdir(mode=0o755)
    runtime.chmod(0o755)
    state = shared / "state"
    with program("assay-server", "--state", state, runtime=runtime) as server:
        assert server.stdout is not None
        address = f"unix:{runtime}/assay/server.sock"
        assert server.stdout.readline() == f"listening on {address}\n"
        assert (runtime / "assay").stat().st_mode & 0o7777 == 0o700
        assert (runtime / "assay" / "server.sock").stat().st_mode & 0o777 == 0o600
        listed = ended("assay", "lab", "status", "--json", runtime=runtime)
        assert json.loads(listed.stdout)["campaigns"] == []
        assert as_nobody(CONNECT, address.removeprefix("unix:")) == "PermissionError"
        campaign = shared / "campaign.yaml"
        campaign.write_text(ATTACK.replace("VICTIM", f"{shared}/victim"))
        campaign.chmod(0o644)
        assert as_nobody(SUBMIT, address, campaign) == "UNAVAILABLE"
        with program("assay-agent", "run", "--state", shared / "agent", runtime=runtime) as agent:
            assert agent.stderr is not None
            log = ""
            while "registered with" not in log:
                line = agent.stderr.readline()
                assert line, log
                log += line
            assert f"registered with {address} " in log


@needs_second_user
def test_over_tcp_nobody_without_a_certificate_gets_in_and_an_agent_needs_a_policy(shared: Path) -> None:
    """Until 2026-11-22 loopback was open to every user, and what another user submitted ran as root."""
    victim, campaign = shared / "victim", shared / "campaign.yaml"
    campaign.write_text(ATTACK.replace("VICTIM", str(victim)))
    campaign.chmod(0o644)
    refused = ended("assay-server", "--state", shared / "state", "--listen", "127.0.0.1:0")
    assert (refused.returncode, "assay-server init" in refused.stderr) == (2, True)
    assert ended("assay-server", "init", "--state", shared / "state").returncode == 0
    with program("assay-server", "--state", shared / "state", "--listen", "127.0.0.1:0") as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        assert as_nobody(SUBMIT, address, campaign) == "UNAVAILABLE"
        alone = ended("assay-agent", "run", "--server", address, "--state", shared / "agent")
        assert alone.returncode == 10
        assert "over TCP other people and other machines ask for runs" in alone.stderr
        assert "leave --server out, or give unix:PATH" in alone.stderr
        assert not victim.exists()


@needs_second_user
@pytest.mark.parametrize("place", ["assay-0/server.sock", "server.sock"])
def test_who_takes_the_place_first_is_not_believed(shared: Path, place: str) -> None:
    address = f"unix:{shared / place}"
    attacker = start_as_nobody(LISTEN_BEFORE_YOU, shared / place)
    try:
        assert attacker.stdout is not None and attacker.stdout.readline() == "taken\n"
        folder = (shared / place).parent
        owner = f"{folder} belongs to user" if folder != shared else f"other users may write into {folder}"
        for name, *arguments in (
            ("assay-server", "--state", shared / "state", "--listen", address),
            ("assay-agent", "run", "--server", address, "--state", shared / "agent"),
            ("assay", "lab", "status", "--server", address),
        ):
            refused = ended(name, *arguments)
            assert refused.returncode == (5 if name == "assay" else 2), refused.stderr
            assert owner in refused.stderr
            assert "so another user could answer there" in refused.stderr
        assert (shared / place).exists()
    finally:
        attacker.communicate("\n")


@needs_second_user
def test_a_link_that_another_user_put_there_is_not_followed(shared: Path) -> None:
    real = shared / "real"
    real.mkdir(mode=0o700)
    link = shared / "assay-0"
    link.symlink_to(real)
    os.lchown(link, NOBODY, NOBODY)
    for name, *arguments in (
        ("assay-server", "--state", shared / "state", "--listen", f"unix:{link}/s"),
        ("assay-agent", "run", "--server", f"unix:{link}/s", "--state", shared / "agent"),
    ):
        refused = ended(name, *arguments)
        assert refused.returncode == 2
        assert f"{link} belongs to user" in refused.stderr


@needs_second_user
def test_a_socket_of_another_user_is_not_removed(shared: Path) -> None:
    ours = shared / "ours"
    ours.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(ours / "s"))
    os.lchown(ours / "s", NOBODY, NOBODY)
    refused = ended("assay-server", "--state", shared / "state", "--listen", f"unix:{ours}/s")
    assert (refused.returncode, (ours / "s").exists()) == (2, True)
    assert "the socket there belongs to user" in refused.stderr


def test_a_stale_socket_of_ours_is_removed_and_a_living_one_is_not(shared: Path) -> None:
    runtime = shared / "runtime"
    (runtime / "assay").mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(runtime / "assay" / "server.sock"))
    with program("assay-server", "--state", shared / "state", runtime=runtime) as server:
        assert server.stdout is not None and server.stdout.readline().startswith("listening on unix:")
        second = ended("assay-server", "--state", shared / "other", runtime=runtime)
        assert second.returncode == 2
        assert "cannot listen on it: another program does" in second.stderr
        assert ended("assay", "lab", "status", runtime=runtime).returncode == 0


def test_a_runtime_folder_with_a_long_name_says_so(shared: Path) -> None:
    runtime = shared / ("x" * 100)
    runtime.mkdir(mode=0o700)
    for name, *arguments in (
        ("assay-server", "--state", shared / "state"),
        ("assay-agent", "run", "--state", shared / "agent"),
        ("assay", "lab", "status"),
    ):
        refused = ended(name, *arguments, runtime=runtime)
        assert refused.returncode == 2
        assert "bytes, and a socket's has at most 107" in refused.stderr
