"""Agents as jobs of a Slurm of one node, and the server that they join, for the tests of this folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.slurm.one_node import OneNode
from tests.support.integration.harness import BIN, Lab, lab
from tests.support.integration.paced_recordings import write_paced_recordings

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


def submit_agents(
    node: OneNode,
    made: Lab,
    *options: str,
    recorded: int = 1,
    told: Mapping[str, str] | None = None,
    answers: bool = True,
) -> tuple[str, Path]:
    """``assay lab slurm sbatch`` with a token in a private file; the job's number and the state root.

    ``told``: further variables of the environment; ``answers``: whether the server is there now.
    """
    root, token, policy = made.root / "100% of 'us' $(x) #1", made.root / "token", made.root / "policy.toml"
    node.jobs = root
    token.touch(mode=0o600)
    token.write_text(made.token("agent", "--uses", "8"))
    policy.write_text(POLICY)
    policy.chmod(0o644)
    done = subprocess.run(
        [str(BIN / "assay"), "lab", "slurm", "sbatch", "--join", made.join_address,
         "--token-file", str(token),
         "--state-root", str(root), "--policy", str(policy), "--json", *options, "--", *AGENT,
         "--recorded-slots", str(recorded)],
        env={**node.environment, **(told or {})}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["warnings"] == [] or not answers
    assert token.read_text() not in document["script"]
    return str(document["job_id"]), root


def report_of(made: Lab) -> str:
    return made.assay("report", "chaos-1", "--format", "json").stdout


def agents_of(made: Lab) -> dict[str, dict[str, Any]]:
    """The agents that the server knows, by name."""
    return {
        agent["name"]: agent for agent in json.loads(made.assay("lab", "agents", "--json").stdout)["agents"]
    }


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
