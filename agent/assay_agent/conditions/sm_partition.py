"""A static partition of the SMs: a second kind of share, whose SMs only the run uses.

A daemon in static mode (``-S``) hands SMs out in chunks, and a partition is a whole number of chunks. A
client names its partition in its environment; without one it cannot make a context. The share is rounded
down to whole chunks: eight SMs from Hopper on, four on older GPUs.

Source: NVIDIA, Multi-Process Service, "Static SM Partitioning" (CUDA 13.1, Ampere or newer, interface version
2); the format of the answers is from its quick start. None of this was seen on a GPU: see docs/hardware.md.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from assay_agent.conditions.mps import SmShare
from assay_agent.conditions.mps_control import PROGRAM, MpsControl, MpsError, control_release
from assay_agent.execution.environment import MeasuredGPU
from assay_sampling.scoring.two_conditions import chunks_of_share, has_static_partitions

PARTITION_VARIABLE = "CUDA_MPS_SM_PARTITION"
# The program numbers itself as CUDA does: 13010 is 13.1.
_FIRST_RELEASE = 13010
# The first of these commands initialises CUDA.
_SECONDS = 60.0
_IDENTITY = re.compile(r"\b(GPU-[0-9A-Fa-f-]+/[^\s/]+)")
_COLUMNS = 7  # GPU, partition, free and used chunks, free and used SMs, clients


@dataclass(frozen=True)
class Partition:
    """A partition as the daemon lists it; ``identity`` is GPU and partition."""

    identity: str
    chunks: int
    sm_count: int


def makes_partitions(gpu: MeasuredGPU) -> bool:
    """Whether the SMs of a GPU can be partitioned, by its architecture and the box's control program."""
    program = shutil.which(PROGRAM, path=gpu.path)
    if gpu.synthetic or program is None or not has_static_partitions(gpu.device.compute_capability):
        return False
    try:
        with tempfile.TemporaryDirectory(prefix="assay-") as nobody:
            return control_release(program, Path(nobody), gpu.variables)[0] >= _FIRST_RELEASE
    except OSError:
        return False


def add_partition(control: MpsControl, uuid: str, chunks: int) -> Partition:
    """Have the daemon make a partition, and read back what it made; raises MpsError."""
    answer = control.tell(f"sm_partition add {uuid} {chunks}", _SECONDS)
    match = _IDENTITY.search(answer)
    if match is None:
        raise MpsError(f"the MPS daemon made no partition of {chunks} chunks: {answer or 'it says nothing'}")
    listed = control.tell("lspart", _SECONDS)
    name = match[1].partition("/")[2]
    for line in listed.splitlines():
        words = line.split()
        if len(words) == _COLUMNS and words[1] == name and words[3].isdecimal() and words[5].isdecimal():
            return Partition(match[1], int(words[3]), int(words[5]))
    raise MpsError(f"the MPS daemon does not list its partition {name}: {listed[:300] or 'it says nothing'}")


class SmPartition(SmShare):
    """A partition of the SMs under a private MPS daemon that lives as long as the run.

    ``facts`` are those of :class:`SmShare` (``sm_percent_in_force`` by the daemon's count of SMs), with
    ``sm_share``, ``sm_chunks`` and ``sm_partition``.
    """

    daemon_options = ("-S",)

    def program(self) -> str:
        program = super().program()
        capability = self.site.gpu.device.compute_capability
        if not has_static_partitions(capability):
            raise self.failed(
                f"GPUs of compute capability {capability or '?'} have no static partitions of their SMs "
                "(only Ampere, 8.0, and newer GPUs have)",
                "leave sm_share out: a share by percentage works from Volta on",
            )
        release, output = control_release(program, self.site.home, self.site.gpu.variables)
        if release < _FIRST_RELEASE:
            raise self.failed(
                f"{program} cannot make static partitions: it is older than CUDA 13.1 (asked for its version "
                f"it says: {output})",
                "leave sm_share out, or install a driver of CUDA 13.1 or newer",
            )
        return program

    def set_share(self) -> None:
        self.step("share")
        assert self.daemon is not None
        whole = self.whole_sms()
        chunks = chunks_of_share(whole, self.percent, self.site.gpu.device.compute_capability)
        if not chunks:
            raise self.failed(
                f"{self.percent:g} % of {whole} SMs is less than one chunk, which is the smallest partition",
                "ask for a larger share, or leave sm_share out",
            )
        try:
            made = add_partition(self.daemon.control, self.site.gpu.device.uuid, chunks)
        except MpsError as error:
            raise self.failed(f"{error} ({self.daemon.last_words()})") from error
        if made.chunks != chunks:
            raise self.failed(f"{chunks} chunks were asked for, but the MPS daemon made {made.chunks}")
        self._partition = made
        self.environment[PARTITION_VARIABLE] = made.identity
        self.daemon_facts |= {
            "sm_share": "partition",
            "sm_chunks": made.chunks,
            "sm_partition": made.identity,
            "sm_percent_in_force": round(100.0 * made.sm_count / whole, 2),
        }

    def require_share(self, sm_count: int, whole: int) -> None:
        super().require_share(sm_count, whole)
        if sm_count != self._partition.sm_count:
            raise self.failed(
                f"the partition has {self._partition.sm_count} SMs by the MPS daemon's count, but the probe "
                f"sees {sm_count}"
            )
