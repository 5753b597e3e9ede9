"""An agent as a Slurm job: who it is, which GPUs it was given, and why it is signalled."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from assay_agent.cli.joining_in_jobs import ended_by_signals, join_patiently
from assay_agent.config import AgentSettings, VirtualGPUs
from assay_agent.daemon.places import chosen_places, virtual_places
from assay_agent.gpus.chosen import ChosenGpus, chosen_gpus
from assay_agent.jobs.slurm import GivenGpus, SlurmJob, WhyStopped
from assay_core.connecting.token_option import token_in_file
from assay_core.records.machine import InstalledDevice, Inventory
from assay_sampling.errors import NotReadyError, ParameterError, RefusedError, ServerUnreachableError

JOB = {"SLURM_JOB_ID": "12", "SLURM_CLUSTER_NAME": "north"}
BOX = [InstalledDevice(i, "NVIDIA A100", f"GPU-{i}a", "8.0", 108, 1) for i in range(4)]


def said(text: str) -> Callable[..., str]:
    """What a program of Slurm prints."""
    return lambda *_words: text


def test_a_requeued_job_is_the_same_agent_and_each_task_of_an_array_another() -> None:
    job = SlurmJob.of(JOB)
    assert (job.agent_name, job.folder) == ("slurm-north-12", "north-12")
    assert job == SlurmJob.of({**JOB, "SLURM_RESTART_COUNT": "3", "SLURMD_NODENAME": "other"})
    tasks = [
        SlurmJob.of({**JOB, "SLURM_JOB_ID": number, "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": task})
        for number, task in (("13", "0"), ("12", "1"))
    ]
    assert [task.agent_name for task in tasks] == ["slurm-north-12_0", "slurm-north-12_1"]
    assert (
        len({task.agent_id for task in tasks} | {SlurmJob.of({**JOB, "SLURM_CLUSTER_NAME": "s"}).agent_id})
        == 3
    )
    assert all(AgentSettings(agent_id=task.agent_id).agent_id for task in tasks)


@pytest.mark.parametrize("told", [{}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../1"}, {"SLURM_JOB_ID": "²"}])
def test_outside_of_a_job_it_is_not_ready(told: dict[str, str]) -> None:
    with pytest.raises(NotReadyError, match="not in a Slurm job"):
        SlurmJob.of(told)


@pytest.mark.parametrize(
    "name", ["../../etc", "..", "-x", "a b", "a/b", "a\nb", "o'dd&lab+1", "ü" * 300, "\udcff"]
)
def test_a_cluster_of_any_name_has_folders_and_agents_of_its_own(name: str) -> None:
    job = SlurmJob.of({**JOB, "SLURM_CLUSTER_NAME": name})
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,60}-12", job.folder)
    assert job.agent_name == f"slurm-{job.folder}"
    others = (
        "north",
        "slurm",
        "_",
        f"{name}x",
        name.replace("/", "_").replace(" ", "_").replace("'", "_") + "_",
    )
    assert job.folder not in {SlurmJob.of({**JOB, "SLURM_CLUSTER_NAME": each}).folder for each in others}
    assert job == SlurmJob.of({**JOB, "SLURM_CLUSTER_NAME": name})


@pytest.mark.parametrize(
    ("limit", "drain_seconds", "works"),
    [
        ("00:01:00", 45, False), ("00:02:00", 45, False), ("00:02:01", 45, True), ("00:03:00", 30, True),
        ("1-00:00:00", 7200, True), ("02:00:00", 7200, False), ("UNLIMITED", 60_000, True), ("?", 45, True),
    ],
)  # fmt: skip
def test_a_job_whose_limit_is_shorter_than_its_drain_does_not_begin(
    limit: str, drain_seconds: float, works: bool
) -> None:
    job, shown = SlurmJob.of(JOB), f"JobId=12 JobState=RUNNING TimeLimit={limit} TimeMin=N/A\n"
    if works:
        job.require_time(drain_seconds, said(shown))
        return
    with pytest.raises(NotReadyError, match=r"leaves no time to work .* longer --time, or a shorter --drain"):
        job.require_time(drain_seconds, said(shown))


def test_a_job_whose_limit_slurm_does_not_tell_works(caplog: pytest.LogCaptureFixture) -> None:
    def away(*_words: str) -> str:
        raise NotReadyError("scontrol", "it is not there", "wait")

    SlurmJob.of(JOB).require_time(45, away)
    assert "the time limit of the job is unknown" in caplog.text
    SlurmJob.of(JOB).require_time(45, said(""))


class Lab:
    """A server that is away for some calls."""

    def __init__(self, away: int, error: Exception | None = None) -> None:
        self.away, self.calls = away, 0
        self.error = error or ServerUnreachableError("lab", "away", "wait")

    def join(self) -> None:
        self.calls += 1
        if self.calls <= self.away:
            raise self.error


class Waits(threading.Event):
    """An event whose waits take no time, and are noted; it is set after so many."""

    def __init__(self, most: int = 1_000) -> None:
        super().__init__()
        self.most, self.seconds = most, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        if len(self.seconds) >= self.most:
            self.set()
        return self.is_set()


def test_a_job_waits_for_a_server_that_is_away_when_it_starts() -> None:
    lab, waits = Lab(6), Waits()
    assert join_patiently(lab.join, waits)
    assert (lab.calls, waits.seconds) == (7, [2, 4, 8, 16, 30, 30])


def test_a_job_that_is_signalled_while_it_waits_for_the_server_stops_waiting() -> None:
    lab = Lab(1_000)
    assert not join_patiently(lab.join, Waits(most=3))
    assert lab.calls == 3
    with ended_by_signals() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.wait(20)


@pytest.mark.parametrize("away", [0, 1_000])
def test_a_signal_during_the_last_call_ends_the_job_whatever_the_answer(away: int) -> None:
    """Slurm signals once: an agent that started now would never hear of it."""
    lab, asked = Lab(away), threading.Event()

    def join() -> None:
        asked.set()
        lab.join()

    assert not join_patiently(join, asked, patience_seconds=0)
    assert lab.calls == 1


def test_a_job_gives_up_on_an_address_that_nobody_answers_and_at_once_on_a_token_that_is_refused() -> None:
    lab = Lab(1_000)
    with pytest.raises(ServerUnreachableError):
        join_patiently(lab.join, Waits(), patience_seconds=0)
    assert lab.calls == 1
    refused = Lab(1_000, RefusedError("token", "it was used", "make another"))
    with pytest.raises(RefusedError):
        join_patiently(refused.join, Waits())
    assert refused.calls == 1


SHOWN = (
    "JobId=12 ArrayJobId=12 ArrayTaskId=1 JobState=RUNNING JOB_GRES=gpu:v100:2 Nodes=n1 "
    "GRES=gpu:v100:2(IDX:0,2-3) TresPerNode=gres:gpu:2\n"
    "JobId=13 ArrayJobId=12 ArrayTaskId=0 JobState=RUNNING GRES=gpu:v100:1(IDX:1)\n"
)


@pytest.mark.parametrize(
    ("told", "given"),
    [
        ({"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "3"}, GivenGpus(("1",))),
        ({"CUDA_VISIBLE_DEVICES": "GPU-0a,GPU-2a"}, GivenGpus(("GPU-0a", "GPU-2a"))),
        ({"SLURM_JOB_GPUS": "2,3"}, GivenGpus(("2", "3"), of_the_node=True)),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles", "SLURM_JOB_GPUS": "2"}, GivenGpus(("2",), of_the_node=True)),
        ({"SLURM_GPUS_ON_NODE": "3"}, GivenGpus(("0", "2", "3"), of_the_node=True)),
    ],
)
def test_the_gpus_of_a_job_are_those_that_slurm_names(told: dict[str, str], given: GivenGpus) -> None:
    assert SlurmJob.of(JOB).gpus(told, said(SHOWN)) == given


@pytest.mark.parametrize(
    "told",
    [{}, {"CUDA_VISIBLE_DEVICES": ""}, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, {"SLURM_GPUS_ON_NODE": "0"}],
)
def test_a_job_without_gpus_says_how_to_get_one(told: dict[str, str]) -> None:
    with pytest.raises(NotReadyError, match=r"Slurm job 12: it was given no GPU; submit .* --gres gpu:1"):
        SlurmJob.of(JOB).gpus(told, said(SHOWN))


@pytest.mark.parametrize("entry", ["MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f", "MIG-GPU-0a/1/0"])
def test_a_job_with_a_part_of_a_gpu_is_refused(entry: str) -> None:
    with pytest.raises(NotReadyError, match="a part of a GPU"):
        SlurmJob.of(JOB).gpus({"CUDA_VISIBLE_DEVICES": f"GPU-0a,{entry}"})


def test_a_task_of_an_array_is_requeued_alone() -> None:
    asked: list[tuple[str, ...]] = []

    def note(*words: str) -> str:
        asked.append(words)
        return ""

    last = {**JOB, "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "1"}  # it has the number of its array
    for told in (last, JOB):
        SlurmJob.of(told).requeue(note)
    assert asked == [("scontrol", "requeue", "12_1"), ("scontrol", "requeue", "12")]


END = "2026-11-23T10:00:00"


@pytest.mark.parametrize(
    ("line", "left", "why"),
    [
        (f"JobState=RUNNING PreemptTime=None EndTime={END}", 60, WhyStopped.LIMIT),
        (f"JobState=RUNNING PreemptTime=None EndTime={END}", 120, WhyStopped.LIMIT),
        (f"JobState=RUNNING EndTime={END}", 121, WhyStopped.REQUEST),
        ("JobState=RUNNING EndTime=Unknown", 0, WhyStopped.REQUEST),
        (f"JobState=RUNNING PreemptTime=2026-11-23T09:50:00 EndTime={END}", 60, WhyStopped.PREEMPTED),
        (f"JobState=COMPLETING EndTime={END}", 60, WhyStopped.ENDED),
        (f"JobState=CANCELLED PreemptTime=None EndTime={END}", 60, WhyStopped.ENDED),
    ],
)
def test_why_a_job_is_signalled(line: str, left: int, why: WhyStopped) -> None:
    now = datetime.fromisoformat(END).timestamp() - left
    shown = f"JobId=12 {line}\nJobId=13 JobState=FAILED\n"
    assert SlurmJob.of(JOB).why_stopped(120.0, said(shown), now) is why


def left(chosen: ChosenGpus, devices: list[InstalledDevice]) -> list[int]:
    return [device.index for device, why in zip(devices, chosen.reasons(devices), strict=True) if not why]


def test_only_gpus_that_were_chosen_are_offered() -> None:
    def chosen(*setting: str) -> ChosenGpus:
        found = chosen_gpus(setting)
        assert found is not None
        return found

    assert chosen_gpus(()) is None
    assert left(chosen("0,2"), BOX) == [0, 2]
    assert left(chosen("GPU-1a", "3"), BOX) == [1, 3]
    assert left(chosen("9", "GPU-", "1"), BOX) == [1], (
        "an entry that names none, or several, takes no other with it"
    )
    assert "--gpus 0,2 does not have it" in chosen("0,2").reasons(BOX)
    for wrong in (("0,",), ("slurm,0",), ("slurm", "GPU-1a")):
        with pytest.raises(ParameterError, match="--gpus"):
            chosen_gpus(wrong, JOB)


def test_a_job_offers_its_gpus_and_no_others_whether_or_not_the_others_are_hidden() -> None:
    def of_job(**told: str) -> ChosenGpus:
        found = chosen_gpus(("slurm",), {**JOB, **told})
        assert found is not None
        return found

    assert left(of_job(SLURM_JOB_GPUS="2,3"), BOX) == [2, 3]
    assert left(of_job(SLURM_JOB_GPUS="2,3"), BOX[:2]) == [0, 1], "the control group shows the job's alone"
    assert left(of_job(CUDA_VISIBLE_DEVICES="0", SLURM_JOB_GPUS="2"), BOX[:1]) == [0]
    assert left(of_job(CUDA_VISIBLE_DEVICES="GPU-2a"), BOX) == [2]
    assert left(of_job(SLURM_JOB_GPUS="7"), BOX) == []
    with pytest.raises(NotReadyError, match="given no GPU"):
        of_job()


def test_gpus_that_were_left_out_before_stay_left_out() -> None:
    box = (replace(BOX[0], left_out="it is partitioned"), *BOX[1:3])
    judged = ChosenGpus(("0", "1"), "--gpus 0,1").applied(Inventory("host", "", 2, 1, box)).devices
    assert [device.left_out for device in judged] == ["it is partitioned", "", "--gpus 0,1 does not have it"]


def test_virtual_gpus_are_chosen_by_their_number(tmp_path: Path) -> None:
    groups = (VirtualGPUs("V100", 2), VirtualGPUs("RTX 2060"))
    places = list(virtual_places(groups, tmp_path, "ab" * 16))
    first = [place.slot.device_name for place in chosen_places(places, ChosenGpus(("0",), "job"))]
    assert first == [places[0].slot.device_name, places[2].slot.device_name]
    second = chosen_places(places, ChosenGpus(("1",), "job"))
    assert [place.slot.slot_id for place in second] == [places[1].slot.slot_id]
    assert chosen_places(places, None) == places
    with pytest.raises(NotReadyError, match=r"job: none of its GPUs \(7\)"):
        chosen_places(places, ChosenGpus(("7",), "job"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_token_is_read_from_a_file_of_ones_own_alone(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    with pytest.raises(ParameterError, match="there is no file"):
        token_in_file(path)
    path.write_text("  secret-token  \nmore\n")
    path.chmod(mode)
    with pytest.raises(ParameterError, match="others may read") as raised:
        token_in_file(path)
    assert "secret-token" not in str(raised.value)
    path.chmod(0o400)
    assert token_in_file(path) == "secret-token"
    path.chmod(0o600)
    path.write_text("\nsecret-token\n")
    with pytest.raises(ParameterError, match="is empty"):
        token_in_file(path)
