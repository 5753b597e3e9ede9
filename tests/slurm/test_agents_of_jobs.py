"""Agents as jobs of a real Slurm, over mutual TLS: limits, preemption, requeue, cancellation, their own GPUs.

A requeued job waits for about two minutes (Slurm's BeginTime), so tests take minutes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.running.failures import FailureClass
from tests.slurm.one_node import OneNode
from tests.support.integration.harness import BIN, Lab, lab
from tests.support.integration.paced_recordings import write_paced_recordings

pytestmark = [pytest.mark.processes, pytest.mark.timeout(2400)]

WORKLOAD = """\
workload = "{name}"
seed = {seed}
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[[phases]]
repeat = 300
steps = [{{ kernel = "scale", grid = 1024 }}]
"""
POLICY = """\
version = 1
allow_root = true
recordings = ["/**"]
directories = ["/**"]
environment = ["ASSAY_VIRTUAL_FAULTS"]
[[allow]]
program = "/**"
"""
AGENT = ("--virtual", "V100:2")
LONGEST_SECONDS = 300.0


def write_campaign(folder: Path, *, played: int = 0, live: int = 0, faults: str = "") -> Path:
    """A campaign of recordings that are played for 8 s each, and of workloads for virtual GPUs."""
    text = write_paced_recordings(folder, runs=played, launches=4000, seconds=8.0)
    if live:
        text = text.replace("synthetic: true\n", "synthetic: true\ngpus: [V100]\n")
    for number in range(live):
        (folder / f"live{number}.toml").write_text(WORKLOAD.format(name=f"live{number}", seed=number))
        told = f", environment: {{ASSAY_VIRTUAL_FAULTS: '{faults}'}}" if faults else ""
        text += f"  - {{name: live{number}, command: [./live{number}.toml], timeout_s: 800{told}}}\n"
    campaign = folder / "campaign.yaml"
    campaign.write_text(text)
    return campaign


@contextmanager
def cluster_and_lab(parameters: str = "", *, grace_seconds: int = 15) -> Iterator[tuple[OneNode, Lab]]:
    with OneNode(parameters, grace_seconds=grace_seconds) as node, lab("tcp") as made:
        made.start_server()
        yield node, made


def submit_agents(node: OneNode, made: Lab, *options: str, recorded: int = 1) -> tuple[str, Path]:
    """``assay slurm sbatch`` with a token in a private file; the job's number and the state root."""
    root, token, policy = made.root / "100% of 'us' $(x) #1", made.root / "token", made.root / "policy.toml"
    node.jobs = root
    token.touch(mode=0o600)
    token.write_text(made.token("agent", "--uses", "8"))
    policy.write_text(POLICY)
    policy.chmod(0o644)
    done = subprocess.run(
        [str(BIN / "assay"), "slurm", "sbatch", "--join", made.join_address, "--token-file", str(token),
         "--state-root", str(root), "--policy", str(policy), "--json", *options, "--", *AGENT,
         "--recorded-slots", str(recorded)],
        env=dict(node.environment), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["warnings"] == []
    assert token.read_text() not in document["script"]
    return str(document["job_id"]), root


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


def report_of(made: Lab) -> str:
    return made.assay("report", "chaos-1", "--format", "json").stdout


def agents_of(made: Lab) -> dict[str, dict[str, Any]]:
    """The agents that the server knows, by name."""
    return {agent["name"]: agent for agent in json.loads(made.assay("agents", "--json").stdout)["agents"]}


def gpus_of(agent: dict[str, Any]) -> list[str]:
    return [slot["slot"] for slot in agent["slots"] if slot["gpu"]]


def log_of(root: Path, job: str) -> str:
    path = root / f"slurm-{job}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def starts(root: Path, job: str) -> int:
    """How often the agent of a job has registered."""
    return log_of(root, job).count("registered with")


def preempt(node: OneNode, gpus: int = 1) -> None:
    """A job of the partition that goes first takes GPUs for a few seconds."""
    command = ("--partition=urgent", f"--gres=gpu:{gpus}", "--output=/dev/null", "--wrap", "sleep 5")
    node.run("sbatch", *command)


def cancel(node: OneNode, job: str) -> None:
    """``scancel``, until nothing is left of the job."""
    node.run("scancel", job)
    node.wait_for(lambda: job not in node.run("squeue", "-h", "-o", "%F").split(), "end of the jobs", 120)


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
