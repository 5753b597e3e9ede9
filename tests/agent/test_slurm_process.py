"""``assay-agent slurm-job`` as a process, with a stand-in of scontrol: its GPUs, its end, its requeue."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.support.agent.agent_processes import AGENT
from tests.support.agent.fake_server import FakeServer, wait_for
from tests.support.agent.nvidia_tools import processes_of
from tests.support.agent.tool_bench import WORKLOAD
from tests.support.agent.virtual_runs import add

pytestmark = pytest.mark.processes


def write_scontrol(folder: Path, shown: str) -> Path:
    """A program ``scontrol`` that shows job 12 so, and notes what else it is asked for."""
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "scontrol"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/asked\n[ "$1" = requeue ] || echo "JobId=12 {shown}"\n'
    )
    program.chmod(0o755)
    return programs


@contextmanager
def job(server: FakeServer, folder: Path, *options: str, **told: str) -> Iterator[subprocess.Popen[str]]:
    """The agent of job 12, with variables that Slurm tells it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "CUDA_"))}
    environment = {
        **kept,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "TMPDIR": str(folder),
        "SLURM_JOB_ID": "12",
        "SLURM_CLUSTER_NAME": "north",
        **told,
    }
    words = ("slurm-job", "--server", server.address, "--state-root", str(folder / "jobs of 'us'"))
    process = subprocess.Popen(
        [*AGENT, *words, "--minimum-free", "0", "--virtual", "V100:2", "--recorded-slots", "0", *options],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_requeued_job_is_the_same_agent_with_its_gpu_and_a_run_that_was_signalled_is_handed_back(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "small.toml").write_text(WORKLOAD)
    end = datetime.now() + timedelta(seconds=50)
    write_scontrol(tmp_path, f"JobState=RUNNING PreemptTime=None EndTime={end:%Y-%m-%dT%H:%M:%S} x=y")
    add(server, "c-1.0000", tmp_path, "light", "hang")
    with job(server, tmp_path, "--requeue", "--drain", "10m", CUDA_VISIBLE_DEVICES="1") as agent:
        wait_for(lambda: hanging(tmp_path))
        for process in hanging(tmp_path):  # as Slurm: every process of the job, the agent last
            os.kill(process, signal.SIGTERM)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(90) == 0
    (failed,) = server.failures
    assert failed.failure.failure_class == "agent_restarted"
    assert "every process of it was signalled" in failed.failure.cause
    assert (tmp_path / "asked").read_text().splitlines()[-1] == "requeue 12"
    # As on a node where the user's home cannot be written.
    with job(
        server, tmp_path, CUDA_VISIBLE_DEVICES="1", SLURM_RESTART_COUNT="1", HOME="/proc/nobody"
    ) as agent:
        wait_for(lambda: len(server.registrations) >= 2)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(90) == 0
    first, second = server.registrations[0], server.registrations[-1]
    assert first.agent_id == second.agent_id
    assert (first.name, second.name) == ("slurm-north-12", "slurm-north-12")
    assert [slot.slot_id[:18] for slot in second.slots] == ["GPU-virtual-V100-1"]
    assert (tmp_path / "jobs of 'us'").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "asked").read_text().count("requeue") == 1, "only if that was asked for"


def hanging(folder: Path) -> list[int]:
    """The processes of a run that hangs, without their supervisor, which heeds the agent alone."""
    found = processes_of(folder)
    return [
        number for number, words in found.items() if " profile --trace" in words and "supervisor" not in words
    ]


@pytest.mark.parametrize(
    ("first", "last", "requeued"),
    [
        ("JobState=COMPLETING", "JobState=RUNNING PreemptTime=2026-11-23T04:43:27", True),
        ("JobState=RUNNING PreemptTime=2026-11-23T04:43:27", "JobState=COMPLETING", False),
        ("JobState=RUNNING PreemptTime=None EndTime=Unknown", "JobState=RUNNING PreemptTime=None", False),
    ],
)
def test_the_last_answer_of_slurm_says_whether_a_preempted_job_is_requeued(
    server: FakeServer, tmp_path: Path, first: str, last: str, requeued: bool
) -> None:
    program = write_scontrol(tmp_path, last) / "scontrol"
    program.write_text(
        program.read_text().replace(
            "[ ",
            # It is asked at the start, at the signal, and after the drain.
            f'[ $(wc -l < {tmp_path}/asked) -gt 2 ] || {{ echo "JobId=12 {first}"; exit; }}\n[ ',
            1,
        )
    )
    with job(server, tmp_path, CUDA_VISIBLE_DEVICES="0") as agent:
        wait_for(lambda: server.registrations)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(90) == 0
    assert ("requeue 12" in (tmp_path / "asked").read_text().splitlines()) is requeued


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ({}, "Slurm job 12: it was given no GPU"),
        ({"CUDA_VISIBLE_DEVICES": "MIG-5c89852c"}, "a part of a GPU"),
        ({"CUDA_VISIBLE_DEVICES": "7"}, "Slurm job 12: none of its GPUs (7) can be offered here"),
        (
            {"CUDA_VISIBLE_DEVICES": "0", "TIME_LIMIT": "00:01:00"},
            "its time limit of 60 s leaves no time to",
        ),
        ({"SLURM_JOB_ID": ""}, "this process is not in a Slurm job"),
    ],
)
def test_a_job_without_a_gpu_of_its_own_ends_and_says_why(
    server: FakeServer, tmp_path: Path, told: dict[str, str], cause: str
) -> None:
    write_scontrol(tmp_path, "JobState=RUNNING TimeLimit=$TIME_LIMIT")
    with job(server, tmp_path, **told) as agent:
        assert agent.wait(90) == 10
        assert agent.stderr is not None
        assert cause in agent.stderr.read()
    assert server.registrations == []
