"""The images are built from a Debian tree, without a registry or a network, and run by Podman."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.images.podman import Podman

SOCKET = "unix:/run/assay-server/server.sock"
IMAGES = ["server", "agent", "client"]

pytestmark = pytest.mark.timeout(3600)


def inspected(podman: Podman, image: str) -> Any:
    [found] = json.loads(podman.run("podman", "image", "inspect", image).stdout)
    return found


@pytest.mark.parametrize("target", IMAGES)
def test_an_image_starts_its_program_without_a_network(podman: Podman, target: str) -> None:
    image = podman.build(target)
    [said] = podman.said("run", "--rm", "--network", "none", image, "--version")
    assert said.startswith("assay")
    found = inspected(podman, image)
    assert found["Config"]["User"] in ("10001:10001", "10002:10002")
    assert found["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


@pytest.mark.parametrize("target", IMAGES)
def test_another_build_from_the_same_parts_gives_the_same_layers_and_settings(
    podman: Podman, target: str
) -> None:
    first = inspected(podman, podman.build(target))
    second = inspected(podman, podman.build(target, "--no-cache", tag=f"assay-{target}-again"))
    podman.run("podman", "untag", f"assay-{target}-again")
    assert second["RootFS"]["Layers"] == first["RootFS"]["Layers"]
    assert second["Config"] == first["Config"]


def test_a_server_is_healthy_and_ends_at_the_signal(podman: Podman) -> None:
    [name] = podman.said("run", "--detach", "--network", "none", podman.build("server"))
    asked = ("podman", "exec", name, "assay-server", "health", SOCKET)
    until = time.monotonic() + 300
    while podman.run(*asked, check=False).returncode and time.monotonic() < until:
        time.sleep(1)
    assert podman.run(*asked).returncode == 0
    assert podman.run("podman", "healthcheck", "run", name).returncode == 0
    podman.run("podman", "stop", "--time", "60", name)
    assert podman.said("inspect", name, "--format", "{{.State.ExitCode}}") == ["0"]
