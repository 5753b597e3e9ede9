"""The Slurm job in which this process runs, as Slurm tells it in the environment.

Source: sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"; gres.conf(5): GPUs are numbered by the PCI bus.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from assay_core.settings.slurm_times import slurm_seconds
from assay_sampling.errors import NotReadyError

_log = logging.getLogger(__name__)

_NO_JOB = "start it with 'assay lab slurm sbatch', or in a job script"
_NO_GPU = "submit the job with GPUs: --gres gpu:1"
_ASK_SECONDS = 20.0
_UNSET = ("", "(null)", "NoDevFiles")
_LONGEST_CLUSTER = 32
# Slurm's signal comes some seconds before a run must be back, and up to a minute earlier than asked for.
_AROUND_DRAIN_SECONDS = 75.0


class WhyStopped(Enum):
    """Why the agent of a job gets a SIGTERM."""

    LIMIT = "its time limit is near"
    PREEMPTED = "another job takes its place"
    REQUEST = "somebody asks it to end"
    ENDED = "Slurm has ended it"


@dataclass(frozen=True)
class GivenGpus:
    """The GPUs of a job: ``entries`` as CUDA_VISIBLE_DEVICES has them.

    ``of_the_node``: ordinals count all GPUs of the node, also where the job sees only its own.
    """

    entries: tuple[str, ...]
    of_the_node: bool = False


@dataclass(frozen=True)
class SlurmJob:
    """A job: its number is the same after a requeue, and each task of an array has its own."""

    number: int
    cluster: str
    shown: str  # how Slurm's own programs name it: 12, or 10_2 for a task of an array

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> SlurmJob:
        """The job of this process, or of an ``environment``; raises NotReadyError outside of jobs."""
        variables = os.environ if environment is None else environment
        number = variables.get("SLURM_JOB_ID", "")
        cluster = variables.get("SLURM_CLUSTER_NAME", "") or "slurm"
        if not number.isascii() or not number.isdecimal():
            raise NotReadyError("SLURM_JOB_ID", "this process is not in a Slurm job", _NO_JOB)
        array, task = variables.get("SLURM_ARRAY_JOB_ID", ""), variables.get("SLURM_ARRAY_TASK_ID", "")
        in_array = array.isascii() and array.isdecimal() and task.isascii() and task.isdecimal()
        return cls(int(number), _plain(cluster), f"{array}_{task}" if in_array else number)

    @property
    def agent_name(self) -> str:
        """What people call its agent."""
        return f"slurm-{self.cluster}-{self.shown}"

    @property
    def agent_id(self) -> str:
        """The identity of its agent: that of a requeued job is the same."""
        text = f"slurm-{self.cluster}-{self.number}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def folder(self) -> str:
        """The name of its state folder."""
        return f"{self.cluster}-{self.number}"

    def gpus(
        self,
        environment: Mapping[str, str] | None = None,
        ask: Callable[..., str] | None = None,
    ) -> GivenGpus:
        """The GPUs that it was given; raises NotReadyError if it has none, or only a part of one (MIG).

        ``ask`` runs a program of Slurm; only tests replace it.
        """
        variables = os.environ if environment is None else environment
        visible, of_the_node = variables.get("CUDA_VISIBLE_DEVICES", ""), False
        if visible in _UNSET:
            visible, of_the_node = variables.get("SLURM_JOB_GPUS", ""), True
        if visible in _UNSET and variables.get("SLURM_GPUS_ON_NODE", "0") not in ("", "0"):
            visible = self._allocated(ask or printed)
        entries = tuple(entry.strip() for entry in visible.split(","))
        if visible in _UNSET or not all(entries):
            raise NotReadyError(f"Slurm job {self.shown}", "it was given no GPU", _NO_GPU)
        parts = [entry for entry in entries if entry.upper().startswith("MIG")]
        if parts:
            raise NotReadyError(
                f"Slurm job {self.shown}",
                f"it was given a part of a GPU ({parts[0]}), and parts share clocks, caches and counters, so "
                "that a run on one measures its neighbours too",
                "ask Slurm for a type of GPU that is not partitioned: --gres gpu:TYPE:1",
            )
        return GivenGpus(entries, of_the_node)

    def require_time(self, drain_seconds: float, ask: Callable[..., str] | None = None) -> None:
        """Raise NotReadyError if the time limit leaves no time to work before the drain.

        Such a job would be signalled as soon as it has started, and again after each requeue.
        """
        try:
            line = self._job_line(ask or printed)
        except NotReadyError as error:
            _log.warning("the time limit of the job is unknown: %s", error)
            return
        match = re.search(r"(?:^| )TimeLimit=(\S+)", line)
        limit = slurm_seconds(match[1]) if match else None
        if limit is not None and limit <= drain_seconds + _AROUND_DRAIN_SECONDS:
            raise NotReadyError(
                f"Slurm job {self.shown}",
                f"its time limit of {limit} s leaves no time to work before {drain_seconds:.0f} s of drain",
                "submit it with a longer --time, or a shorter --drain",
            )

    def why_stopped(
        self, limit_seconds: float, ask: Callable[..., str] | None = None, now: float | None = None
    ) -> WhyStopped:
        """Why Slurm signals a job that runs; it is at its limit if at most ``limit_seconds`` are left.

        ``now``: Unix seconds. Raises NotReadyError if Slurm does not answer.
        """
        fields = dict(re.findall(r"(?:^| )(\w+)=(\S*)", self._job_line(ask or printed)))
        if fields.get("JobState") != "RUNNING":
            return WhyStopped.ENDED  # cancelled, or preempted without grace: then Slurm requeues it itself
        if fields.get("PreemptTime", "None") not in ("None", "Unknown"):
            return WhyStopped.PREEMPTED
        try:
            end = datetime.fromisoformat(fields.get("EndTime", "")).timestamp()
        except ValueError:  # no limit
            return WhyStopped.REQUEST
        remaining_seconds = end - (time.time() if now is None else now)
        return WhyStopped.LIMIT if remaining_seconds <= limit_seconds else WhyStopped.REQUEST

    def requeue(self, ask: Callable[..., str] | None = None) -> None:
        """Have Slurm run it again; this process ends by it. Raises NotReadyError if Slurm refuses.

        The number of one task of an array is that of the whole array, so a task goes by its other name.
        """
        (ask or printed)("scontrol", "requeue", self.shown)

    def _allocated(self, ask: Callable[..., str]) -> str:
        """The ordinals on the node, where Slurm sets no variable (Flags=no_gpu_env, plain files as GPUs)."""
        lists = re.findall(r"\bgpu(?::[^():,\s]+)*:\d+\(IDX:([0-9,-]+)\)", self._job_line(ask))
        return ",".join(str(each) for text in lists for each in _numbers(text))

    def _job_line(self, ask: Callable[..., str]) -> str:
        """The line that Slurm tells of this job; the first job of an array also has those of the others."""
        output = ask("scontrol", "--oneliner", "--details", "show", "job", str(self.number))
        mine = [line for line in output.splitlines() if line.split()[:1] == [f"JobId={self.number}"]]
        return mine[0] if mine else ""


def _plain(cluster: str) -> str:
    """A cluster's name as part of a folder's and an agent's; odd ones get a hash, so that none are alike."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", cluster)[:_LONGEST_CLUSTER]
    if plain == cluster and plain[0] not in ".-":
        return plain
    suffix = hashlib.blake2b(cluster.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"{plain.lstrip('.-') or 'slurm'}-{suffix}"


def printed(*command: str) -> str:
    """What a program of Slurm prints; raises NotReadyError with its own words."""
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotReadyError(
            command[0], f"it cannot be asked ({error})", "look at the Slurm of this node"
        ) from error
    if completed.returncode != 0:
        cause = completed.stderr.strip() or f"it ended with {completed.returncode}"
        raise NotReadyError(" ".join(command), cause, "look at the Slurm of this node")
    return completed.stdout


def _numbers(text: str) -> list[int]:
    """The numbers of Slurm's list, such as ``0,2-3``."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers
