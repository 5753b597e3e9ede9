"""The work of a slot: the run, the window of its launches, and the lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from assay_core.records.attempt import AttemptKey
from assay_core.records.upload import Bundle
from assay_core.records.wire import Record, received_values, sent_values
from assay_protos import agent_pb2
from assay_sampling.running.identity import BASELINE, Condition, Level, RunLevel


@dataclass(frozen=True)
class RecordedSource(Record[agent_pb2.RecordedSource]):
    """The file that a recorded run plays back; ``recorded_time``: at the recorded pace."""

    path: Path
    recorded_time: bool = False


@dataclass(frozen=True)
class CommandSource(Record[agent_pb2.CommandSource]):
    """The command that a live run measures.

    ``timeout_s`` 0: the agent's own limit. ``memory_limit_bytes`` covers all processes of the workload and
    its profiler; 0: no limit. ``kineto_file`` is the trace that the workload itself writes, relative to its
    working directory; "" if it writes none. ``processes``: how many of its processes launch kernels; 0: the
    campaign file does not say. ``bundle``: the files in which it runs, confined; None: it runs what lies on
    the box. ``operations``: record which operation each launch belongs to. ``light_limit_s``: when
    a light run is ended, whose launches until then count; 0: it is recorded whole.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    working_directory: str = ""
    timeout_s: float = 0.0
    memory_limit_bytes: int = 0
    kineto_file: str = ""
    processes: int = 0
    bundle: Bundle | None = None
    operations: bool = False
    light_limit_s: int = 0


@dataclass(frozen=True, kw_only=True)
class RunSpec(Record[agent_pb2.RunSpec]):
    """What a run measures: one repeat of a workload on a kind of GPU at one level under one condition.

    ``level`` "bare": the command without a profiler, which records no launches. ``profiler``: the name under
    which slots offer it. A recorded run has ``recorded``, a live one ``command``. ``counters`` are the
    canonical names to collect. ``under_mps``: under a private MPS daemon; true for runs at a share of the SMs
    and for their reference at 100 %.
    """

    campaign_id: str
    workload: str
    device_kind: str
    level: RunLevel
    profiler: str
    condition: Condition = BASELINE
    repeat: int = 0
    synthetic: bool = False
    recorded: RecordedSource | None = None
    command: CommandSource | None = None
    counters: tuple[str, ...] = ()
    under_mps: bool = False


@dataclass(frozen=True, kw_only=True)
class _Assignment(Record[agent_pb2.Work]):
    """What the work for a slot has besides its run."""

    key: AttemptKey
    launch_skip: int = 0
    launch_count: int = 0
    lease_remaining_ms: int = 60_000
    write_secret: bytes = field(default=b"", repr=False)
    gang: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Work(_Assignment, RunSpec):
    """One attempt to make: the run, the window of its launches, and the lease.

    The window skips ``launch_skip`` launches, then takes ``launch_count`` (0: all the rest).
    ``lease_remaining_ms`` counts from now and is extended by every heartbeat that is answered.
    ``write_secret`` proves to the server that this agent holds the lease: for the spool and requests only.
    ``gang``: the other slots of the agent that the run has; empty if it has one GPU.
    """

    @property
    def bare(self) -> bool:
        """Whether the command runs without a profiler."""
        return self.level == "bare"

    @property
    def table_level(self) -> Level:
        """The level for launch tables and conditions: a bare run counts as a light one."""
        return "light" if self.level == "bare" else self.level

    def with_command(self, command: CommandSource) -> Self:
        """The work with another command."""
        return replace(self, command=command)

    def to_proto(self) -> agent_pb2.Work:
        run = agent_pb2.RunSpec(run_id=self.key.run_id, **sent_values(self, RunSpec))
        return agent_pb2.Work(run=run, **sent_values(self, _Assignment))

    @classmethod
    def from_proto(cls, message: agent_pb2.Work) -> Work:
        """Raises WireError for work that this release does not understand."""
        own = received_values(_Assignment, message)
        return cls(**received_values(RunSpec, message.run, str(own["key"])), **own)
