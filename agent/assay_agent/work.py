"""What an agent is asked to do, as plain data: the rest of the agent knows no protobuf messages."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from assay_agent.pinned import Pinned
from assay_protos import agent_pb2, common_pb2
from assay_sampling.errors import AssayError
from assay_sampling.failures import Failure
from assay_sampling.identity import SmShareKind
from assay_sampling.launch_table import CacheCondition, ClockCondition, Condition, Level
from assay_sampling.validity import invalidates

# Tells a workload which trace to write.
KINETO_VARIABLE = "ASSAY_KINETO_FILE"
_BARE = "bare"
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class WireError(AssayError):
    """The server sent something that this agent cannot act on."""


@dataclass(frozen=True, order=True)
class AttemptKey:
    """One execution under one lease; ``token`` fences off executions under older leases."""

    run_id: str
    slice_index: int
    attempt: int
    token: int

    def __post_init__(self) -> None:
        # The key becomes the name of a directory, so nothing that leads elsewhere may pass.
        if not _RUN_ID.fullmatch(self.run_id) or min(self.slice_index, self.attempt) < 0:
            raise WireError(
                f"run {self.run_id[:80]!r}",
                "its identifier is not made of letters, digits, '.', '_' and '-'",
                "run the same release of Assay on agent and server",
            )

    @property
    def directory_name(self) -> str:
        return f"{self.run_id}-{self.slice_index}-{self.attempt}"

    def __str__(self) -> str:
        return f"run {self.run_id} slice {self.slice_index} attempt {self.attempt}"

    def to_proto(self) -> common_pb2.AttemptKey:
        return common_pb2.AttemptKey(
            run_id=self.run_id, slice=self.slice_index, attempt=self.attempt, token=self.token
        )

    @classmethod
    def from_proto(cls, key: common_pb2.AttemptKey) -> AttemptKey:
        """Raises WireError for a key that cannot be one."""
        return cls(key.run_id, key.slice, key.attempt, key.token)


@dataclass(frozen=True)
class RecordedSource:
    """The file that a recorded run plays back; ``recorded_time``: at its own pace."""

    path: Path
    recorded_time: bool = False


@dataclass(frozen=True)
class CommandSource:
    """The command that a live run measures.

    ``timeout_seconds`` 0: the agent's own limit. ``memory_limit_bytes`` is for all processes of the workload
    and its profiler; 0: no limit. ``kineto_file`` is the trace that the workload itself writes, relative to
    its working directory; "": it writes none. ``pins`` are what a policy judged of it; empty: nothing was.
    """

    argv: tuple[str, ...]
    environment: dict[str, str]
    working_directory: str = ""
    timeout_seconds: float = 0.0
    memory_limit_bytes: int = 0
    kineto_file: str = ""
    pins: tuple[Pinned, ...] = ()


def kineto_fault(name: str) -> str:
    """Why a name cannot be that of a trace in the working folder, "" where it can."""
    path = PurePosixPath(name)
    if not name or "\0" in name:
        return "it names no file"
    if path.is_absolute() or ".." in path.parts:
        return "it leads out of the folder in which the command runs"
    if set(name) & set("*?["):
        return "it is a pattern, and traces of several processes are not put together"
    return ""


@dataclass(frozen=True)
class Assignment:
    """One attempt to make: which run, under which condition, which window of its launches.

    ``launch_skip`` launches are left out, then ``launch_count`` are taken (0: all the rest).
    ``deadline_seconds`` counts from the lease and is extended by every heartbeat that is answered.
    ``bare``: a light run's command without its profiler, which gives no launches.
    ``counters`` are the canonical names to collect; ``under_mps``: under a private MPS daemon even at 100 %.
    ``write_secret`` proves to the server that this agent holds the lease: for the spool and requests only.
    """

    key: AttemptKey
    campaign_id: str
    workload: str
    device_kind: str
    level: Level
    condition: Condition
    profiler: str
    synthetic: bool = False
    bare: bool = False
    repeat: int = 0
    recorded: RecordedSource | None = None
    command: CommandSource | None = None
    counters: tuple[str, ...] = ()
    under_mps: bool = False
    launch_skip: int = 0
    launch_count: int = 0
    deadline_seconds: float = 60.0
    write_secret: bytes = field(default=b"", repr=False)

    def to_json(self) -> dict[str, Any]:
        """For the manifest of a spooled attempt."""
        document = dataclasses.asdict(self)
        document["write_secret"] = self.write_secret.hex()
        if self.recorded:
            document["recorded"]["path"] = str(self.recorded.path)
        return document

    @classmethod
    def from_proto(cls, work: agent_pb2.Work) -> Assignment:
        """Raises WireError for work that this agent does not understand."""
        run = work.run
        key = AttemptKey.from_proto(work.key)
        return cls(
            key=key,
            campaign_id=run.campaign_id,
            workload=run.workload,
            device_kind=run.device_kind,
            level="light" if run.level == _BARE else _one_of(str(key), "level", run.level, get_args(Level)),
            condition=_condition(str(key), run.condition),
            profiler=run.profiler,
            synthetic=run.synthetic,
            bare=run.level == _BARE,
            repeat=run.repeat,
            recorded=_recorded(run),
            command=_command(run),
            counters=tuple(run.counters),
            under_mps=run.under_mps,
            launch_skip=work.launch_skip,
            launch_count=work.launch_count,
            deadline_seconds=work.deadline_ms / 1000,
            write_secret=work.write_secret,
        )


def _recorded(run: agent_pb2.RunSpec) -> RecordedSource | None:
    if not run.HasField("recorded"):
        return None
    return RecordedSource(Path(run.recorded.path), run.recorded.recorded_time)


def _command(run: agent_pb2.RunSpec) -> CommandSource | None:
    if not run.HasField("command"):
        return None
    command = run.command
    return CommandSource(
        tuple(command.argv),
        dict(command.environment),
        command.working_directory,
        command.timeout_s,
        command.memory_limit_bytes,
        command.kineto_file,
    )


def _condition(subject: str, condition: common_pb2.Condition) -> Condition:
    return Condition(
        cache=_one_of(subject, "cache", condition.cache, get_args(CacheCondition))
        if condition.cache
        else None,
        clock=_one_of(subject, "clock", condition.clock, get_args(ClockCondition))
        if condition.clock
        else None,
        sm_percent=condition.sm_percent or None,
        sm_share=_one_of(subject, "sm_share", condition.sm_share or "limit", get_args(SmShareKind)),
    )


def _one_of(subject: str, what: str, value: str, known: tuple[str, ...]) -> Any:
    if value not in known:
        raise WireError(
            subject,
            f"its {what} {value!r} is none of {', '.join(known)}",
            "run the same release of Assay on agent and server",
        )
    return value


@dataclass(frozen=True)
class ValidityFlag:
    """What a reader of the numbers must know; ``invalidates``: results refuse to rest on the run."""

    name: str
    detail: str
    invalidates: bool = False

    def to_proto(self) -> common_pb2.ValidityFlag:
        return common_pb2.ValidityFlag(name=self.name, detail=self.detail, invalidates=self.invalidates)

    @classmethod
    def of_kind(cls, name: str, detail: str) -> ValidityFlag:
        """The flag with the effect that the registry gives its kind."""
        return cls(name, detail, invalidates(name))


def failure_to_proto(failure: Failure) -> common_pb2.Failure:
    """A failure as it travels."""
    return common_pb2.Failure(
        failure_class=str(failure.failure_class),
        subject=failure.subject,
        cause=failure.cause,
        remedy=failure.remedy,
        retryable=failure.retryable,
    )
