"""The lab of deploy/compose.yaml runs the campaign of 'make demo' in Podman, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.images.parts import have_parts
from tests.images.podman import Podman
from tests.services.packages import folder_of, why_not

FILE = "deploy/compose.yaml"
PROJECT = "assay-lab"
# What a report says, without whose box and which programs.
NUMBERS = ("verdicts", "summary", "rows", "recommendations", "selections", "drawn", "sm_share", "cold_start")
OBJECTS = """
import json, obstore
from obstore.store import S3Store
keys = dict(line.split(" = ") for line in open("/run/assay-secrets/objects").read().splitlines())
store = S3Store("assay-lab", prefix="records", endpoint="http://objects:8333", region="us-east-1",
    access_key_id=keys["aws_access_key_id"], secret_access_key=keys["aws_secret_access_key"],
    client_options={"allow_http": True})
print(json.dumps([each["path"] for part in obstore.list(store) for each in part]))
"""
TARGETS = """
import urllib.request
print(urllib.request.urlopen("http://prometheus:9090/api/v1/query?query=up", timeout=10).read().decode())
"""

pytestmark = pytest.mark.timeout(3600)


class ComposeLab:
    """The lab, in a network namespace of its own: Podman's rules for packets are made there and go with it.

    Args:
        podman: works in that namespace.
        packages: the folder with podman-compose.
    """

    def __init__(self, podman: Podman, packages: Path) -> None:
        self.podman = podman
        self._packages = packages

    def compose(self, *words: str, environment: dict[str, str] | None = None, check: bool = True) -> str:
        """What ``podman-compose --file deploy/compose.yaml WORDS`` prints."""
        python = {"PYTHONPATH": str(self._packages), **(environment or {})}
        command = [sys.executable, str(self._packages / "bin" / "podman-compose"), "--file", FILE, *words]
        return self.podman.run(*command, environment=python, check=check).stdout

    def container(self, service: str) -> str:
        """The name of a service's container."""
        [name] = self.podman.said(
            "ps", "--all", "--format", "{{.Names}}",
            "--filter", f"label=io.podman.compose.project={PROJECT}",
            "--filter", f"label=com.docker.compose.service={service}",
        )  # fmt: skip
        return name

    def python(self, service: str, program: str) -> Any:
        """The JSON that a program prints in a container of ours."""
        name = self.container(service)
        return json.loads(
            self.podman.run("podman", "exec", name, "/opt/assay/bin/python", "-c", program).stdout
        )

    def left(self) -> dict[str, list[str]]:
        """Containers of the lab, as others may run some, too; and all volumes and networks."""
        of_lab = f"label=io.podman.compose.project={PROJECT}"
        return {
            "containers": self.podman.said("ps", "--all", "--filter", of_lab, "--format", "{{.Names}}"),
            "volumes": self.podman.said("volume", "ls", "--format", "{{.Name}}"),
            "networks": self.podman.said("network", "ls", "--format", "{{.Name}}"),
        }


def packet_rules() -> str:
    """The machine's own rules, without their counters and times."""
    said = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line.split(" [")[0] for line in said.splitlines() if not line.startswith("#"))


@pytest.fixture(scope="module")
def compose_lab(podman: Podman) -> Iterator[ComposeLab]:
    packages = folder_of(Path(os.environ.get("ASSAY_SERVICES", "")), "images")
    if missing := why_not(packages):
        pytest.skip(f"'make test-compose' runs it: {missing}")
    for target in ("server", "agent", "client"):
        podman.build(target)
    print("stand-ins for public images:", *have_parts(podman, packages / "bin" / "weed"))
    name = f"assay-compose-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    lab = ComposeLab(Podman(podman.cache, Path("/run/netns", name)), packages)
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield lab
    finally:
        lab.compose("--profile", "campaign", "down", "--volumes", check=False)
        subprocess.run(["ip", "netns", "delete", name], check=True)


def demo_report(folder: Path) -> Any:
    """The report of 'make demo': one server, SQLite and a local folder."""
    program = Path(sys.executable).parent / "assay"
    subprocess.run([program, "demo", "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return json.loads((folder / "report.json").read_text())


def test_the_lab_runs_the_demos_campaign_and_leaves_nothing(compose_lab: ComposeLab, tmp_path: Path) -> None:
    rules, before = packet_rules(), compose_lab.left()

    compose_lab.compose("up", "--detach")
    said = compose_lab.compose(
        "--profile", "campaign", "run", "--rm", "-T", "campaign", environment={"REPORT_FORMAT": "json"}
    )
    report = json.loads(said[said.index("{") :])
    demo = demo_report(tmp_path / "demo")
    for part in NUMBERS:
        assert report[part] == demo[part], part

    kept = compose_lab.python("server-1", OBJECTS)
    assert any(name.endswith(".parquet") for name in kept)
    assert any("report" in name for name in kept)
    scraped = compose_lab.python("agent", TARGETS)["data"]["result"]
    up = {each["metric"]["instance"]: each["value"][1] for each in scraped}
    assert up == {"server-1:9470": "1", "server-2:9470": "1", "agent:9471": "1"}

    compose_lab.compose("down", "--volumes")
    assert compose_lab.left() == before
    assert packet_rules() == rules
