"""The images are built by Buildah from a Debian tree, without a registry, and run by Podman.

Rootful, with storage, settings and a cgroup manager of their own, and without a network: nothing is left on
the machine but the cache with the tree and the layers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREE = "localhost/assay-debian-tree"
PACKAGES = "python3-venv,ca-certificates,openssl"
SOCKET = "unix:/run/assay-server/server.sock"
Podman = Callable[..., "subprocess.CompletedProcess[str]"]


def why_not() -> str:
    if not os.environ.get("ASSAY_IMAGES"):
        return "'make test-image' runs it"
    if os.geteuid():
        return "mmdebstrap and Podman need root here"
    missing = [name for name in ("mmdebstrap", "buildah", "podman", "runc") if shutil.which(name) is None]
    return f"install Debian's {', '.join(missing)}" if missing else ""


pytestmark = [pytest.mark.timeout(1800), pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Podman's settings: limits that a machine without CAP_SYS_RESOURCE allows, and storage of our own."""
    cache = Path(os.environ["ASSAY_IMAGES"]).absolute()
    cache.mkdir(parents=True, exist_ok=True)
    storage = f'[storage]\ndriver = "overlay"\ngraphroot = "{cache}/root"\nrunroot = "{cache}/run"\n'
    (cache / "storage.conf").write_text(storage)
    (cache / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=4000:4000"]\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        f'tmp_dir = "{cache}/tmp"\n'
    )
    named = {
        "CONTAINERS_STORAGE_CONF": f"{cache}/storage.conf",
        "CONTAINERS_CONF": f"{cache}/containers.conf",
    }
    return {**os.environ, **named}


@pytest.fixture(scope="module")
def podman(environment: dict[str, str]) -> Iterator[Podman]:
    def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=environment, cwd=ROOT, check=check, text=True, stdout=subprocess.PIPE
        )

    if run("podman", "image", "exists", TREE, check=False).returncode:
        tree = Path(environment["ASSAY_IMAGES"]) / "tree.tar"
        run("mmdebstrap", "--variant=apt", "--mode=root", f"--include={PACKAGES}", "bookworm", str(tree))
        run("podman", "import", "--quiet", str(tree), TREE)
        tree.unlink()
    yield run
    run("podman", "rm", "--all", "--force", "--time", "0", check=False)


def build(podman: Podman, target: str) -> str:
    made = podman(
        "buildah", "bud", "--isolation", "chroot", "--format", "docker", "--network", "none", "--layers",
        "--quiet", "--timestamp", "1000000000", "--build-arg", f"BASE={TREE}", "--target", target,
        "--tag", f"assay-{target}", "--file", "deploy/Containerfile", ".",
    )  # fmt: skip
    return made.stdout.split()[-1]


@pytest.mark.parametrize("target", ["server", "agent", "client"])
def test_an_image_starts_its_program_without_a_network(podman: Podman, target: str) -> None:
    image = build(podman, target)
    said = podman("podman", "run", "--rm", "--network", "none", image, "--version").stdout
    assert said.startswith("assay")
    [found] = json.loads(podman("podman", "image", "inspect", image).stdout)
    assert found["Config"]["User"] in ("10001:10001", "10002:10002")
    assert found["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_a_server_is_healthy_and_ends_at_the_signal(podman: Podman) -> None:
    image = build(podman, "server")
    name = podman("podman", "run", "--detach", "--network", "none", image).stdout.strip()
    asked = ("podman", "exec", name, "assay-server", "health", SOCKET)
    until = time.monotonic() + 120
    while podman(*asked, check=False).returncode and time.monotonic() < until:
        time.sleep(1)
    assert podman(*asked).returncode == 0
    assert podman("podman", "healthcheck", "run", name).returncode == 0
    podman("podman", "stop", "--time", "60", name)
    assert podman("podman", "inspect", name, "--format", "{{.State.ExitCode}}").stdout.strip() == "0"
