"""Jobs that a real Slurm starts where things are not as they should be."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from assay_agent.daemon.state import credentials_folder
from tests.slurm.jobs import LONGEST_SECONDS, agents_of, cancel, log_of, submit_agents, write_campaign
from tests.slurm.one_node import OneNode
from tests.support.integration.harness import lab

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
CLUSTER = "o'dd&lab+1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_job_waits_for_its_server_without_a_home_in_a_cluster_of_an_odd_name(tmp_path: Path) -> None:
    campaign = write_campaign(tmp_path, played=1)
    address = f"127.0.0.1:{free_port()}"
    with OneNode(cluster=CLUSTER) as node, lab("tcp") as made:
        made.start_server("--join", address)
        assert made.stop("server") == 0, made.logs()
        made.balancer_join = address
        # Like a server that is being restarted, or moved, when Slurm starts a job of last week.
        words, told = ("--time", "10"), {"HOME": "/proc/nobody"}
        waiting, root = submit_agents(node, made, *words, told=told, answers=False)
        node.wait_for(
            lambda: "asking again in" in log_of(root, waiting), "wait for the server", LONGEST_SECONDS
        )
        cancelled, _ = submit_agents(node, made, *words, told=told, answers=False)
        node.wait_for(
            lambda: "asking again in" in log_of(root, cancelled), "wait of the other job", LONGEST_SECONDS
        )
        cancel(node, cancelled)
        assert "Slurm has ended it" in log_of(root, cancelled)
        made.start_server("--join", address)
        assert made.wait_for(made.submit(campaign), LONGEST_SECONDS) == "done", node.logs()
        (name,) = agents_of(made)
        assert name.startswith("slurm-o_dd_lab_1-") and name.endswith(f"-{waiting}")
        # The cancelled job made its key before it asked the server, and got no certificate for it.
        folders = [path for path in root.iterdir() if path.is_dir()]
        assert len(folders) == 2
        joined = [path.name for path in folders if credentials_folder(path).read()]
        assert joined == [name.removeprefix("slurm-")]
        cancel(node, waiting)
        # A site whose default is shorter than the drain: the verb cannot know, but the job can.
        node.run("scontrol", "update", "PartitionName=gpu", "DefaultTime=1")
        short, _ = submit_agents(node, made, "--requeue-at-limit")
        node.wait_for(
            lambda: "leaves no time to work" in log_of(root, short), "word of a short job", LONGEST_SECONDS
        )
        node.wait_for(lambda: node.job(short)["JobState"] == "FAILED", "end of the short job", 120)
        assert node.job(short)["ExitCode"] == "10:0"
        assert set(agents_of(made)) == {name}
