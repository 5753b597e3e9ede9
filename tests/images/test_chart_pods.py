"""The pods of the Helm chart start in Podman, agents join with the token that the notes say, and restart."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.images.podman import Podman
from tests.images.pods import NODE, Cluster, Pod
from tests.services.chart import CHART, documents
from tests.services.packages import folder_of, import_from, why_not

pytestmark = pytest.mark.timeout(3600)
Render = Callable[[dict[str, Any]], tuple[dict[str, Pod], str]]
AGENTS: dict[str, Any] = {"enabled": True, "virtual": ["V100:2"], "counters": "none"}


@pytest.fixture
def cluster(podman: Podman, tmp_path: Path) -> Iterator[Cluster]:
    for target in ("server", "agent", "client"):
        podman.build(target)
    name = f"assay-pods-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield Cluster(podman, tmp_path, Path("/run/netns", name), {})
    finally:
        podman.run("podman", "rm", "--all", "--force", "--time", "0", check=False)
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def render(cluster: Cluster) -> Iterator[Render]:
    """Render the chart as release "assay" in "lab" with our images; gives the pods by name, and the notes."""
    packages = folder_of(Path(os.environ.get("ASSAY_SERVICES", "")), "chart")
    if missing := why_not(packages):
        pytest.skip(f"'make test-compose' runs it: {missing}")
    import_from(packages)
    with importlib.import_module("helm_python.chart").Chart.load(str(CHART)) as chart:

        def rendered(values: dict[str, Any]) -> tuple[dict[str, Pod], str]:
            given = {"image": {"tag": "latest"}, **values}
            found = chart.render(given, name="assay", namespace="lab")
            [notes] = [text for path, text in found.items() if path.endswith("NOTES.txt")]
            return cluster.apply(documents(found)), notes

        yield rendered


def noted(notes: str, containing: str) -> list[str]:
    """The words of the command that the notes have the admin run in the server's container."""
    [line] = [each for each in notes.splitlines() if " -- " in each and containing in each]
    return shlex.split(re.split(r" \| ", line.partition(" -- ")[2])[0])


def backed_up(cluster: Cluster, server: Pod, notes: str) -> None:
    """Make the backup that the notes advise, with a passphrase from outside."""
    words = noted(notes, "assay-server backup")
    command = ["podman", "exec", "--interactive", server.container, *words[: words.index("<")]]
    cluster.podman.run(*command, told="correct horse battery staple")
    assert "day-one.tar" in server.exec("ls", "/tmp") and "passphrase" not in server.exec("ls", "/tmp")


def boxes(cluster: Cluster, server: Pod, notes: str) -> list[dict[str, Any]]:
    """What 'assay lab agents' says to whoever joined with the token that the notes make."""
    words = [*noted(notes, "--role admin"), "--json"]
    token = json.loads(server.exec(*words))["token"]
    script = 'assay lab login "$1:7171" --token "$2" >&2; exec assay lab agents --server "$1:7170" --json'
    run = ["podman", "run", "--rm", *cluster.options(), "--entrypoint", "sh", "localhost/assay-client:latest"]
    found = json.loads(cluster.podman.run(*run, "-euc", script, "sh", "assay.lab.svc", token).stdout)
    assert isinstance(found, dict)
    agents: list[dict[str, Any]] = found["agents"]
    return agents


def joined(cluster: Cluster, server: Pod, notes: str) -> dict[str, Any]:
    until = time.monotonic() + 120
    while not (found := boxes(cluster, server, notes)) and time.monotonic() < until:
        time.sleep(1)
    [agent] = found
    return agent


def test_the_charts_pods_start_join_and_start_again(cluster: Cluster, render: Render) -> None:
    pods, notes = render({"authority": {"name": "Lab 3"}, "agents": AGENTS})
    server, agent = pods["assay-server"], pods["assay-agent"]
    server.start()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        server.wait_for(probe)

    backed_up(cluster, server, notes)
    token = json.loads(server.exec(*noted(notes, "--role agent")))["token"]
    cluster.secrets["assay-join"] = {"token": token}
    agent.start()
    agent.wait_for("livenessProbe")
    first = joined(cluster, server, notes)
    assert first["name"] == NODE

    assert agent.stop() == 0
    assert server.stop() == 0
    server.start()
    server.wait_for("readinessProbe")
    agent.start()
    agent.wait_for("livenessProbe")
    assert joined(cluster, server, notes)["agent_id"] == first["agent_id"]
    assert agent.stop() == 0

    # Another way to counters makes the agent another user, and its identity stays its own.
    policy = "version = 1\nallow_root = true\n"
    for counters in ("capability", "driver"):
        pods, notes = render(
            {"authority": {"name": "Lab 3"}, "agents": {**AGENTS, "counters": counters, "policy": policy}}
        )
        agent = pods["assay-agent"]
        agent.start()
        agent.wait_for("livenessProbe")
        assert joined(cluster, server, notes)["agent_id"] == first["agent_id"]
        assert agent.stop() == 0
    assert server.stop() == 0
