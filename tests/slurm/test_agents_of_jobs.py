"""Agents as jobs of a real Slurm, over mutual TLS: limits, preemption, requeue, cancellation, their own GPUs.

A requeued job waits for about two minutes (Slurm's BeginTime), so each test takes several.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.slurm.one_node import OneNode
from tests.support.integration.harness import BIN, Lab, lab
from tests.support.integration.paced_recordings import write_paced_recordings

pytestmark = [pytest.mark.processes, pytest.mark.timeout(900)]

PLAYED, PLAYED_SECONDS, LAUNCHES = 24, 8.0, 4000
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
POLICY = 'version = 1\nallow_root = true\nrecordings = ["/**"]\n[[allow]]\nprogram = "/**"\n'
AGENT = ("--virtual", "V100:2", "--recorded-slots", "1")


def write_campaign(folder: Path) -> Path:
    """Recordings that take their time, and workloads for virtual GPUs."""
    text = write_paced_recordings(folder, runs=PLAYED, launches=LAUNCHES, seconds=PLAYED_SECONDS)
    for number in range(4):
        (folder / f"live{number}.toml").write_text(WORKLOAD.format(name=f"live{number}", seed=number))
        text += f"  - {{name: live{number}, command: [./live{number}.toml]}}\n"
    campaign = folder / "campaign.yaml"
    campaign.write_text(text.replace("synthetic: true\n", "synthetic: true\ngpus: [V100]\n"))
    return campaign


@contextmanager
def cluster_and_lab(parameters: str) -> Iterator[tuple[OneNode, Lab]]:
    with OneNode(parameters) as node, lab("tcp") as made:
        made.start_server()
        yield node, made


def submit_agents(node: OneNode, made: Lab, *options: str) -> tuple[str, Path]:
    """``assay slurm sbatch`` with a token in a private file; the job's number and the state root."""
    root, token, policy = made.root / "jobs of 'us' $(x)", made.root / "token", made.root / "policy.toml"
    token.touch(mode=0o600)
    token.write_text(made.token("agent", "--uses", "8"))
    policy.write_text(POLICY)
    policy.chmod(0o644)
    done = subprocess.run(
        [str(BIN / "assay"), "slurm", "sbatch", "--join", made.join_address, "--token-file", str(token),
         "--state-root", str(root), "--policy", str(policy), "--json", *options, "--", *AGENT],
        env={**node.environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["warnings"] == []
    assert token.read_text() not in document["script"]
    return str(document["job_id"]), root


def undisturbed_report(campaign: Path, identities: dict[str, str]) -> str:
    """The report of the same agents, which nobody disturbs, without Slurm."""
    with lab("tcp") as made:
        made.start_server()
        for name, identity in identities.items():
            made.start_agent(name, "--agent-id", identity, *AGENT)
        assert made.wait_for(made.submit(campaign), 600) == "done"
        return made.assay("report", "chaos-1", "--format", "json").stdout


def agents_of(made: Lab) -> dict[str, dict[str, object]]:
    """The agents that the server knows, by name."""
    return {agent["name"]: agent for agent in json.loads(made.assay("agents", "--json").stdout)["agents"]}


def gpus_of(agent: dict[str, object]) -> list[str]:
    slots = agent["slots"]
    assert isinstance(slots, list)
    return [slot["slot"] for slot in slots if slot["gpu"]]


def log_of(root: Path, job: str) -> str:
    path = root / f"slurm-{job}.log"
    return path.read_text(errors="replace") if path.exists() else ""


def test_the_agents_of_an_array_take_the_gpus_of_their_jobs_and_a_job_without_one_ends() -> None:
    with cluster_and_lab("") as (node, made):
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
        node.run("scancel", array)
        node.wait_for(lambda: array not in node.run("squeue", "-h", "-o", "%A"), "end of both jobs", 120)
        logs = [log_of(root, f"{array}_{task}") for task in (0, 1)]
        assert all("SIGTERM: stopping" in log for log in logs), logs
        bare, _ = submit_agents(node, made, "--gres", "", "--time", "10")
        node.wait_for(lambda: "it was given no GPU" in log_of(root, bare), "word of a job without a GPU", 120)
        folders = [path for path in root.iterdir() if path.is_dir()]
        assert len(folders) == 2
        assert all(path.stat().st_mode & 0o777 == 0o700 for path in (root, *folders))
