"""Two agents of one identity, as a cloned box makes them: the second is told so, and what to do."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.support.integration.harness import BIN, Lab, lab, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]


def registered(laboratory: Lab, name: str) -> int:
    return (laboratory.root / f"{name}.log").read_text().count("registered with")


def test_a_copy_of_an_agent_is_told_so_and_gets_an_identity_of_its_own() -> None:
    with lab(lease_ms=30_000, heartbeat_ms=500) as laboratory:
        laboratory.start_server()
        laboratory.start_agent("first")
        wait_until(lambda: registered(laboratory, "first") == 1, "the first agent")
        shutil.copytree(laboratory.root / "first", laboratory.root / "copy")
        laboratory.start_agent("copy")
        copy = laboratory.processes.pop("copy")
        assert copy.wait(timeout=60) == 7
        said = (laboratory.root / "copy.log").read_text()
        assert "is also that of agent first on host" in said
        assert "assay-agent new-identity --state DIR" in said
        assert registered(laboratory, "first") == 1, "the first one keeps its session"

        command = [BIN / "assay-agent", "new-identity", "--state", laboratory.root / "copy", "--json"]
        made = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert made["agent_id"] != made["agent_id_before"]
        laboratory.start_agent("copy")
        wait_until(lambda: registered(laboratory, "copy") == 1, "the copy with an identity of its own")

        laboratory.kill("first")
        laboratory.start_agent("first")
        wait_until(lambda: registered(laboratory, "first") == 2, "the first one's start after a kill")
