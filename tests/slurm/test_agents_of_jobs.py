"""Agents as jobs of a real Slurm, over mutual TLS: limits, preemption, requeue, cancellation, their own GPUs.

A requeued job waits for about two minutes (Slurm's BeginTime), so tests take minutes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from assay_sampling.running.failures import FailureClass
from tests.slurm.jobs import (
    AGENT,
    LONGEST_SECONDS,
    POLICY,
    agents_of,
    cancel,
    cluster_and_lab,
    gpus_of,
    log_of,
    preempt,
    report_of,
    starts,
    submit_agents,
    write_campaign,
)
from tests.support.integration.harness import BIN, lab

pytestmark = [pytest.mark.processes, pytest.mark.timeout(2400)]


def undisturbed_report(campaign: Path, root: Path, gpus: dict[str, str]) -> str:
    """The report of the agents whose states are below ``root``, without Slurm; ``gpus``: by job folder."""
    with lab("tcp") as made:
        made.start_server()
        policy = made.root / "policy of jobs.toml"
        policy.write_text(POLICY)
        for folder, gpu in gpus.items():
            identity = json.loads((root / folder / "agent.json").read_text())["agent_id"]
            state = ("--state", str(made.root / folder), "--name", folder, "--agent-id", identity)
            join = (str(BIN / "assay-agent"), "join", made.join_address, "--token", made.token("agent"))
            subprocess.run([*join, *state], check=True, capture_output=True)
            made.start_agent(
                folder, "--policy", str(policy), "--gpus", gpu, *AGENT,
                "--recorded-slots", "12",
            )  # fmt: skip
        assert made.wait_for(made.submit(campaign), LONGEST_SECONDS) == "done"
        return report_of(made)


def test_the_agents_of_an_array_take_the_gpus_of_their_jobs_and_a_job_without_one_ends() -> None:
    with cluster_and_lab() as (node, made):
        array, root = submit_agents(node, made, "--agents", "2", "--time", "10")
        names = {f"slurm-assay-{array}_{task}" for task in (0, 1)}
        node.wait_for(lambda: names <= set(agents_of(made)), "two agents", 120)
        found = agents_of(made)
        offered = {name: gpus_of(found[name]) for name in names}
        assert sorted(gpus[0][:19] for gpus in offered.values()) == [
            "GPU-virtual-V100-0-",
            "GPU-virtual-V100-1-",
        ]
        assert all(len(gpus) == 1 for gpus in offered.values())
        cancel(node, array)
        logs = [log_of(root, f"{array}_{task}") for task in (0, 1)]
        assert all("SIGTERM: stopping" in log and "Slurm has ended it" in log for log in logs), logs
        bare, _ = submit_agents(node, made, "--gres", "", "--time", "10")
        node.wait_for(lambda: "it was given no GPU" in log_of(root, bare), "word of a job without a GPU", 120)
        folders = [path for path in root.iterdir() if path.is_dir()]
        assert len(folders) == 2
        assert all(path.stat().st_mode & 0o777 == 0o700 for path in (root, *folders))


def test_agents_drain_at_the_limit_and_at_preemption_and_go_on_after_a_requeue(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, played=28)
    with cluster_and_lab("SlurmctldParameters=preempt_send_user_signal") as (node, made):
        options = ("--agents", "2", "--time", "3", "--requeue-at-limit", "--drain", "30s")
        array, root = submit_agents(node, made, *options)
        jobs = [f"{array}_{task}" for task in (0, 1)]
        made.submit(campaign)
        node.wait_for(
            lambda: all("published" in log_of(root, job) for job in jobs),
            "work of both agents",
            LONGEST_SECONDS,
        )
        preempt(node)
        node.wait_for(
            lambda: any("another job takes its place" in log_of(root, job) for job in jobs), "preemption"
        )
        first = next(job for job in jobs if "another job takes its place" in log_of(root, job))
        second = next(job for job in jobs if job != first)
        node.wait_for(
            lambda: "its time limit is near" in log_of(root, second),
            "signal before the limit",
            LONGEST_SECONDS,
        )
        for job in (first, second):
            node.wait_for(lambda job=job: starts(root, job) == 2, f"second start of {job}", LONGEST_SECONDS)
        assert made.wait_for("chaos-1", LONGEST_SECONDS) == "done"
        disturbed, names = report_of(made), set(agents_of(made))
        cancel(node, array)
        logs = {job: log_of(root, job) for job in jobs}
        assert names == {f"slurm-assay-{job}" for job in jobs}, "the same agents after the requeue"
        assert not any("failed: " in log for log in logs.values()), "each run under way had time to end"
        folders = {path.name for path in root.iterdir() if path.is_dir()}
        assert len(folders) == 2
        undisturbed = undisturbed_report(campaign, root, dict(zip(sorted(folders), "01", strict=True)))
    assert disturbed == undisturbed


def test_a_run_whose_processes_slurm_signalled_is_measured_again_and_is_no_failure(tmp_path: Path) -> None:
    switch = tmp_path / "faults"
    switch.write_text("hang")
    campaign = write_campaign(tmp_path, live=1, faults=f"@{switch}")
    # Without the parameter the signal goes to every process of the job, at the end of its grace time.
    with cluster_and_lab(grace_seconds=1) as (node, made):
        job, root = submit_agents(node, made, "--time", "20", recorded=0)
        made.submit(campaign)
        node.wait_for(lambda: " begins " in log_of(root, job), "run that hangs", LONGEST_SECONDS)
        preempt(node, gpus=2)
        node.wait_for(
            lambda: "every process of it was signalled" in log_of(root, job), "end of that run", 120
        )
        switch.write_text("")
        node.wait_for(lambda: starts(root, job) == 2, "second start", LONGEST_SECONDS)
        assert made.wait_for("chaos-1", LONGEST_SECONDS) == "done"
        assert FailureClass.AGENT_RESTARTED.value in log_of(root, job)
        assert FailureClass.APPLICATION_FAILED.value not in log_of(root, job)
        disturbed = report_of(made)
        cancel(node, job)
        undisturbed = undisturbed_report(campaign, root, {f"assay-{job}": "0"})
    assert disturbed == undisturbed
