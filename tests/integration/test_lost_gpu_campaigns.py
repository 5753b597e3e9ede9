"""Virtual GPUs that are lost, through a real server and a real agent: out of service, and the runs go on.

Everything is synthetic: the stand-ins lose the GPUs because they are told to (``gpu_lost``).
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from assay_agent.config import VirtualGPUs
from assay_agent.daemon.agent import Agent
from assay_agent.daemon.places import virtual_places
from assay_agent.health.quarantine import Quarantine, Quarantined
from assay_client.api import Client
from assay_client.local import run_campaign
from assay_sampling.errors import NotReadyError
from assay_virtual.model.gpu import VirtualGPU
from tests.support.integration.harness import BIN, Lab, lab, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

WORKLOAD = """\
workload = "small"
seed = 1
[buffers]
a = "1 MiB"
[kernels.one]
name = "one"
block = 256
instructions = 100
reads = { a = 1.0 }
[[phases]]
repeat = 12
steps = [{ kernel = "one", grid = 40 }]
"""
CAMPAIGN = """\
campaign: lost
synthetic: true
gpus: [V100]
detailed: {first: 6, slice_launches: 6, sets: cycles}
workloads:
"""


def campaign(folder: Path, **faults: str) -> Path:
    """A workload for each keyword, with its fault switches."""
    (folder / "small.toml").write_text(WORKLOAD)
    text = CAMPAIGN
    for name, switch in faults.items():
        text += f"  - name: {name}\n    command: [small.toml]\n"
        if switch:
            text += f'    environment: {{ASSAY_VIRTUAL_FAULTS: "{switch}"}}\n'
    text += "analysis: {methods: [systematic]}\n"
    path = folder / "lost.yaml"
    path.write_text(text)
    return path


def out_of_service(place: Lab, agent: str = "agent") -> list[Quarantined]:
    """What the agent's state folder says."""
    return Quarantine(place.root / agent).entries()


def clear(place: Lab, gpu: str) -> None:
    """What a person does on the box."""
    command = [str(BIN / "assay-agent"), "quarantine", "clear", gpu, "--state", str(place.root / "agent")]
    subprocess.run(command, check=True, timeout=60)


def submit(place: Lab, file: Path) -> str:
    with Client(place.address) as client:
        return client.submit(file)


def attempts(place: Lab, campaign_id: str) -> list[dict[str, Any]]:
    with Client(place.address) as client:
        runs = client.status(campaign_id)["runs"]
        return [attempt for run in runs for attempt in client.run(run["run_id"])["attempts"]]


def ended(place: Lab, campaign_id: str) -> str:
    """The campaign's last state, looked at seldom: tests of whole agents cost enough."""
    with Client(place.address) as client:
        for status in client.watch(campaign_id):
            last = str(status["state"])
    return last


def until_runs_are(place: Lab, campaign_id: str, state: str, workload: str = "") -> None:
    """Wait until the runs of the campaign, or those of one workload, are all in a state."""
    deadline = time.monotonic() + 240
    while set(states(place, campaign_id, workload)) != {state}:
        assert time.monotonic() < deadline, f"the runs of {campaign_id} never were all {state}"
        time.sleep(0.5)


def states(place: Lab, campaign_id: str, workload: str = "") -> list[str]:
    """Of the campaign's runs, or those of one workload."""
    with Client(place.address) as client:
        runs = client.status(campaign_id)["runs"]
    return [run["state"] for run in runs if workload in ("", run["workload"])]


def gpus(place: Lab) -> list[str]:
    """The UUIDs of the agent's virtual GPUs, as it names them."""
    agent_id = json.loads((place.root / "agent" / "agent.json").read_text())["agent_id"]
    return [f"{VirtualGPU('V100', number).device.uuid}-{agent_id[:8]}" for number in range(2)]


def test_one_of_two_gpus_is_lost_and_the_campaign_is_complete() -> None:
    with lab(lease_ms=10_000) as place:
        place.start_server()
        place.start_agent("agent", "--virtual", "V100:2", "--recorded-slots", "0")
        wait_until((place.root / "agent" / "agent.json").exists, "the agent's start")
        bad, good = gpus(place)
        identifier = submit(place, campaign(place.root, small=f"gpu_lost:{bad}"))
        assert ended(place, identifier) == "done"
        made = attempts(place, identifier)
        lost = [a for a in made if a["failure"] is not None]
        assert [(a["slot"], a["failure"]["failure_class"]) for a in lost] == [(bad, "gpu_lost")]
        assert {a["slot"] for a in made if a["state"] == "published"} == {good}
        assert len(made) == 3, "a detailed run, a light run, and the one that was lost"
        assert [(entry.gpu, entry.index) for entry in out_of_service(place)] == [(bad, 0)]
        # A restart of the agent does not bring it back.
        place.stop("agent")
        place.start_agent("agent", "--virtual", "V100:2", "--recorded-slots", "0")
        second = submit(place, campaign(place.root, fine=""))
        until_runs_are(place, second, "done")
        assert {a["slot"] for a in attempts(place, second)} == {good}


@pytest.mark.campaigns
def test_a_workload_that_kills_gpus_gets_two_and_the_others_go_on() -> None:
    with lab(lease_ms=10_000) as place:
        place.start_server()
        place.start_agent("agent", "--virtual", "V100:2", "--recorded-slots", "0")
        identifier = submit(place, campaign(place.root, killer="gpu_lost", fine=""))
        until_runs_are(place, identifier, "failed", "killer")
        assert len(out_of_service(place)) == 2
        assert states(place, identifier, "fine") == ["waiting", "waiting"]
        # Another agent's GPU is not risked for it, and makes what is left.
        place.start_agent("other", "--virtual", "V100", "--recorded-slots", "0")
        assert ended(place, identifier) == "failed"  # two of its runs have
        assert states(place, identifier, "fine") == ["done", "done"]
        assert {row["workload"] for row in place.report(identifier)["rows"]} == {"fine"}
        assert out_of_service(place, "other") == []


@pytest.mark.campaigns
def test_where_every_gpu_is_lost_status_says_why_and_a_clear_ends_the_wait() -> None:
    with lab(lease_ms=10_000) as place:
        place.start_server()
        place.start_agent("agent", "--virtual", "V100", "--recorded-slots", "0")
        wait_until((place.root / "agent" / "agent.json").exists, "the agent's start")
        bad = gpus(place)[0]
        (place.root / "faults").write_text("gpu_lost")
        identifier = submit(place, campaign(place.root, small=f"@{place.root / 'faults'}"))
        with Client(place.address) as client:
            # A run that waits for a free slot has another reason first, so the wait is for this one.
            start = "every synthetic V100 with"
            reasons: list[str] = []

            def waiting() -> bool:
                reasons[:] = [run["waiting_for"] for run in client.status(identifier)["runs"]]
                return all(reason.startswith(start) for reason in reasons)

            wait_until(waiting, "the wait for a GPU that is out of service")
        reason = reasons[0]
        assert reason.startswith(start + " nsight_compute is out of service: virtual V100")
        assert bad in reason
        assert "it was lost (simulated fault)" in reason
        assert "assay-agent quarantine clear" in reason
        shown = place.assay("lab", "status", identifier).stdout
        assert "out of service" in " ".join(shown.split())
        (place.root / "faults").write_text("")
        clear(place, "0")
        until_runs_are(place, identifier, "done")


def test_a_campaign_in_one_process_ends_where_its_only_gpu_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other agent will ever come, so waiting for one would be for ever."""

    def with_a_virtual_gpu(self: Agent, inventory: Any, state: Any, chosen: Any) -> Any:
        return list(virtual_places([VirtualGPUs("V100")], state.directory, state.agent_id))

    monkeypatch.setattr(Agent, "_places", with_a_virtual_gpu)
    with pytest.raises(NotReadyError) as caught:
        run_campaign(campaign(tmp_path, small="gpu_lost"), tmp_path / "s")
    assert "cannot continue here: every synthetic V100" in caught.value.cause
    assert str(tmp_path / "s" / "agent") in caught.value.remedy
