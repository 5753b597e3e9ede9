"""The work of a slot: the run, the window of its launches, and the lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from assay_core.records.attempt import AttemptKey
from assay_core.records.upload import Bundle
from assay_core.records.wire import LEVELS, Record, condition_from_proto, condition_to_proto
from assay_protos import agent_pb2
from assay_sampling.running.identity import BASELINE, Condition, Level, RunLevel


@dataclass(frozen=True)
class RecordedSource:
    """The file that a recorded run plays back; ``recorded_time``: at the recorded pace."""

    path: Path
    recorded_time: bool = False

    def to_proto(self) -> agent_pb2.RecordedSource:
        return agent_pb2.RecordedSource(path=str(self.path), recorded_time=self.recorded_time)

    @classmethod
    def from_proto(cls, message: agent_pb2.RecordedSource) -> RecordedSource:
        return cls(Path(message.path), message.recorded_time)


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
class RunSpec:
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

    def spec_to_proto(self, run_id: str) -> agent_pb2.RunSpec:
        return agent_pb2.RunSpec(
            campaign_id=self.campaign_id,
            run_id=run_id,
            workload=self.workload,
            device_kind=self.device_kind,
            level=LEVELS.to_proto(self.level),
            condition=condition_to_proto(self.condition),
            repeat=self.repeat,
            synthetic=self.synthetic,
            profiler=self.profiler,
            recorded=None if self.recorded is None else self.recorded.to_proto(),
            command=None if self.command is None else self.command.to_proto(),
            counters=self.counters,
            under_mps=self.under_mps,
        )


@dataclass(frozen=True, kw_only=True)
class Work(RunSpec):
    """One attempt to make: the run, the window of its launches, and the lease.

    The window skips ``launch_skip`` launches, then takes ``launch_count`` (0: all the rest).
    ``lease_remaining_ms`` counts from now and is extended by every heartbeat that is answered.
    ``write_secret`` proves to the server that this agent holds the lease: for the spool and requests only.
    ``gang``: the other slots of the agent that the run has; empty if it has one GPU.
    """

    key: AttemptKey
    launch_skip: int = 0
    launch_count: int = 0
    lease_remaining_ms: int = 60_000
    write_secret: bytes = field(default=b"", repr=False)
    gang: tuple[str, ...] = ()

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
        return agent_pb2.Work(
            key=self.key.to_proto(),
            run=self.spec_to_proto(self.key.run_id),
            launch_skip=self.launch_skip,
            launch_count=self.launch_count,
            lease_remaining_ms=self.lease_remaining_ms,
            write_secret=self.write_secret,
            gang=self.gang,
        )

    @classmethod
    def from_proto(cls, message: agent_pb2.Work) -> Work:
        """Raises WireError for work that this release does not understand."""
        run, key = message.run, AttemptKey.from_proto(message.key)
        return cls(
            key=key,
            campaign_id=run.campaign_id,
            workload=run.workload,
            device_kind=run.device_kind,
            level=LEVELS.from_proto(run.level, str(key)),
            condition=condition_from_proto(run.condition, str(key)),
            profiler=run.profiler,
            synthetic=run.synthetic,
            repeat=run.repeat,
            recorded=RecordedSource.from_proto(run.recorded) if run.HasField("recorded") else None,
            command=CommandSource.from_proto(run.command) if run.HasField("command") else None,
            counters=tuple(run.counters),
            under_mps=run.under_mps,
            launch_skip=message.launch_skip,
            launch_count=message.launch_count,
            lease_remaining_ms=message.lease_remaining_ms,
            write_secret=message.write_secret,
            gang=tuple(message.gang),
        )
