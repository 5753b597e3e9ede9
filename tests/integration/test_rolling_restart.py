"""A new release on server and agents, one by one, during a campaign: no slice is lost or repeated."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from assay_client.api import Client
from tests.support.integration.harness import Lab, lab, wait_until
from tests.support.integration.paced_recordings import write_paced_recordings

pytestmark = pytest.mark.processes

RUNS, SECONDS = 16, 1.5
DRAIN = ("--drain", "30s")


def running(laboratory: Lab, campaign_id: str) -> int:
    with Client(laboratory.address) as client:
        return sum(run["state"] == "running" for run in client.status(campaign_id)["runs"])


def restart(laboratory: Lab, name: str) -> None:
    assert laboratory.stop(name) == 0, laboratory.logs()
    if name == "server":
        laboratory.start_server()
    else:
        laboratory.start_agent(name, *DRAIN)


def test_a_rolling_restart_costs_no_attempt(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign.yaml"
    campaign.write_text(write_paced_recordings(tmp_path, runs=RUNS, launches=200, seconds=SECONDS))
    with lab(lease_ms=20_000, heartbeat_ms=500) as laboratory:
        laboratory.start_server()
        for name in ("first", "second"):
            laboratory.start_agent(name, *DRAIN)
        campaign_id = laboratory.submit(campaign)
        for name in ("server", "first", "second"):
            wait_until(lambda: running(laboratory, campaign_id) > 0, "a run under way")
            restart(laboratory, name)
        assert laboratory.wait_for(campaign_id, 120) == "done"
        status = json.loads(laboratory.assay("lab", "status", campaign_id, "--json").stdout)
        assert [(run["state"], run["attempts"]) for run in status["runs"]] == [("done", 1)] * RUNS
        assert len(laboratory.store_digest()) == RUNS


def test_hangup_reloads_and_an_invalid_file_changes_nothing(tmp_path: Path) -> None:
    """Real processes: settings file and policy are read again, what needs a restart is named."""
    with lab() as laboratory:
        settings = laboratory.root / "server.toml"
        settings.write_text('retry_delay = "1s"\nlease = "20s"\n')
        laboratory.start_server("--config", str(settings))
        policy = laboratory.root / "policy.toml"
        policy.write_text('version = 1\nallow_root = true\nrecordings = ["/**"]\n')
        policy.chmod(0o644)
        laboratory.start_agent("agent", "--policy", str(policy))
        log = laboratory.root / "server.log"

        def hang_up(name: str, said: str) -> None:
            laboratory.processes[name].send_signal(signal.SIGHUP)
            path = laboratory.root / f"{name}.log"
            wait_until(lambda: said in path.read_text(), f"{said!r} in the log")

        settings.write_text(
            'retry_delay = "3s"\nanalysis_workers = 2\nlog_level = "info"\nperson_gpu_hours = 5\n'
        )
        hang_up("server", "reload: retry_delay is now 3s (was 1s)")
        for said in (
            "reload: person_gpu_hours is now 5",
            "reload: log_level is now info (was warning)",
            "reload: analysis_workers becomes 2 only with a restart",
        ):
            wait_until(lambda said=said: said in log.read_text(), f"{said!r} in the log")
        settings.write_text('retry_delay = "soon"\n')
        hang_up("server", "reload is refused, and nothing has changed")
        settings.write_text('retry_delay = "3s"\nanalysis_workers = 2\nlog_level = "info"\n')
        before = log.read_text().count("reload:")
        hang_up("server", "only with a restart")
        wait_until(lambda: log.read_text().count("reload:") > before, "the answer to the third reload")
        assert log.read_text().count("retry_delay is now") == 1, "the refused file changed nothing"

        wait_until(lambda: "registered with" in (laboratory.root / "agent.log").read_text(), "the agent")
        policy.write_text("version = 2\n")
        hang_up("agent", "reload is refused, and nothing has changed")
        policy.write_text('version = 1\nallow_root = true\nrecordings = ["/nowhere/**"]\n')
        hang_up("agent", "reload: the policy has changed")
        campaign = tmp_path / "campaign.yaml"
        campaign.write_text(write_paced_recordings(tmp_path, runs=1, launches=10, seconds=0.1))
        campaign_id = laboratory.submit(campaign)
        assert laboratory.wait_for(campaign_id) == "failed"
        assert "refused_by_policy" in laboratory.assay("lab", "status", campaign_id, "--json").stdout
        assert {name: process.poll() for name, process in laboratory.processes.items()} == {
            "server": None, "agent": None,
        }  # fmt: skip
