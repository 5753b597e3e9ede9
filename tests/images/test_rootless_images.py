"""The images that root built are loaded and run by a user who is not root."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.images.podman import Podman
from tests.images.rootless import FIRST, NUMBER, RootlessPodman, why_not

SOCKET = "unix:/run/assay-server/server.sock"

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def rootless(podman: Podman) -> Iterator[RootlessPodman]:
    if reason := why_not():
        pytest.skip(reason)
    with RootlessPodman() as own:
        if reason := own.why_not():
            pytest.skip(reason)
        for target in ("server", "agent", "client"):
            podman.build(target)
        archive = own.folder / "images.tar"
        names = [f"localhost/assay-{target}" for target in ("server", "agent", "client")]
        podman.run("podman", "save", "--quiet", "--multi-image-archive", "--output", str(archive), *names)
        archive.chmod(0o644)
        own.run("podman", "load", "--quiet", "--input", str(archive))
        archive.unlink()
        yield own


def test_it_is_not_root_who_runs_them(rootless: RootlessPodman) -> None:
    assert rootless.said("info", "--format", "{{.Host.Security.Rootless}}") == ["true"]
    [mapped] = rootless.run("podman", "unshare", "head", "-1", "/proc/self/uid_map").stdout.splitlines()
    assert mapped.split() == ["0", str(NUMBER), "1"]


@pytest.mark.parametrize("target", ["server", "agent", "client"])
def test_an_image_starts_its_program(rootless: RootlessPodman, target: str) -> None:
    [said] = rootless.said("run", "--rm", "--network", "none", f"localhost/assay-{target}", "--version")
    assert said.startswith("assay")


def test_a_server_keeps_its_state_in_a_folder_and_ends_at_the_signal(rootless: RootlessPodman) -> None:
    """As docs/deploy.md says: the folder is given to the server's user as the container sees it."""
    state = rootless.folder / "home" / "state"
    rootless.run("mkdir", "--mode=700", str(state))
    rootless.run("podman", "unshare", "chown", "10001:10001", str(state))
    [name] = rootless.said(
        "run",
        "--detach",
        "--network",
        "none",
        "--volume",
        f"{state}:/var/lib/assay-server",
        "localhost/assay-server",
    )
    asked = ("podman", "exec", name, "assay-server", "health", SOCKET)
    until = time.monotonic() + 300
    while rootless.run(*asked, check=False).returncode and time.monotonic() < until:
        time.sleep(1)
    assert rootless.run(*asked).returncode == 0
    rootless.run("podman", "stop", "--time", "60", name)
    assert rootless.said("inspect", name, "--format", "{{.State.ExitCode}}") == ["0"]
    # Number 1 in the container is the first of the user's range.
    assert {path.stat().st_uid for path in state.iterdir()} == {FIRST + 10_001 - 1}
