"""The settings of an agent."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, model_validator

from assay_agent.gpus.model import gpu_models
from assay_agent.gpus.telemetry_settings import TelemetrySettings
from assay_agent.policy.file import DEFAULT_POLICY_FILE
from assay_core.files.free_space import DEFAULT_FLOOR_BYTES
from assay_core.metrics.reading import (
    MetricsCertificateSetting,
    MetricsKeySetting,
    MetricsPlace,
    MetricsReadersSetting,
    MetricsSetting,
    metrics_place,
)
from assay_core.program import LogFormatSetting, LogLevelSetting
from assay_core.program_log import LogFormat, LogLevel
from assay_core.server_address import SERVER_VARIABLE, SOCKET_OWNER_VARIABLE, default_address
from assay_core.settings.declaration import ProgramSettings, Setting
from assay_sampling.errors import ParameterError


@dataclass(frozen=True)
class VirtualGPUs:
    """``count`` virtual GPUs of one kind; raises ParameterError for a kind that does not exist."""

    kind: str
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", gpu_models().kind(self.kind))
        if not 1 <= self.count <= 1024:
            raise ParameterError(
                f"virtual {self.kind}", f"{self.count} is not in 1..1024", "give a number in that range"
            )

    @classmethod
    def parse(cls, text: str) -> VirtualGPUs:
        """Read ``KIND`` or ``KIND:COUNT``; raises ParameterError."""
        kind, colon, count = text.rpartition(":")
        if not colon:
            return cls(text)
        if not count.isdecimal():
            raise ParameterError(
                f"virtual {text!r}", f"{count!r} is not a number", "write KIND or KIND:COUNT"
            )
        return cls(kind, int(count))


def _virtual(setting: Any) -> Any:
    return VirtualGPUs.parse(setting) if isinstance(setting, str) else setting


class AgentSettings(ProgramSettings):
    """The settings of ``assay-agent``; raises ParameterError for invalid values."""

    program: ClassVar[str] = "assay-agent"
    variable_prefix: ClassVar[str] = "ASSAY_AGENT_"
    reloads: ClassVar[bool] = True

    server: Annotated[
        str,
        Setting(
            "unix:PATH, or HOST:PORT after 'assay-agent join', which needs a policy file.",
            default="the server that was joined, else this user's own socket",
            variable=SERVER_VARIABLE,
            metavar="ADDRESS",
        ),
    ] = Field(default_factory=default_address)
    socket_owner: Annotated[
        str,
        Setting(
            "User whose shared socket is trusted; a policy file must say what its group may ask for.",
            default="only this user's own",
            variable=SOCKET_OWNER_VARIABLE,
            metavar="USER",
        ),
    ] = ""
    state_dir: Annotated[
        Path,
        Setting(
            "Directory of this agent's identity and spool; only one agent may use it at a time.",
            flag="state",
            metavar="DIR",
        ),
    ] = Path("assay-agent-state")
    name: Annotated[
        str, Setting("Name of this agent.", default="the one it joined with, else the host's name")
    ] = Field(default_factory=socket.gethostname, min_length=1)
    agent_id: Annotated[
        str,
        Setting(
            "Identity in a new state directory, 32 hexadecimal digits. Must be unique on the server.",
            default="a random one",
            variable="ASSAY_AGENT_ID",
        ),
        Field(pattern=r"^([0-9a-f]{32})?$"),
    ] = ""
    policy_file: Annotated[
        Path | None,
        Setting(
            "TOML file that says what a server may ask for.",
            default=f"{DEFAULT_POLICY_FILE}, if it exists",
            flag="policy",
            at_runtime=True,
        ),
    ] = None
    recorded_slots: Annotated[
        int, Setting("How many recordings are played back at a time."), Field(ge=0, le=1024)
    ] = 1
    virtual: Annotated[
        tuple[Annotated[VirtualGPUs, BeforeValidator(_virtual)], ...],
        Setting(
            "Offer virtual GPUs (V100, 'RTX 2060:2'); everything they measure is synthetic.",
            metavar="KIND[:COUNT]",
        ),
    ] = ()
    installed_gpus: Annotated[
        bool, Setting("Offer this box's GPUs, if their tools are installed.", metavar="true|false")
    ] = True
    gpus: Annotated[
        tuple[str, ...],
        Setting(
            "Offer only these GPUs: ordinals in the order of the bus, UUIDs, or 'slurm': the Slurm job's.",
            default="all that CUDA_VISIBLE_DEVICES leaves",
            metavar="GPU,...",
        ),
    ] = ()
    spool_limit_bytes: Annotated[
        int | None,
        Setting(
            "Maximum size of the spool.",
            default="a quarter of the free disk, at most 4 GiB",
            at_runtime=True,
        ),
        Field(ge=1),
    ] = None
    minimum_free_bytes: Annotated[
        int, Setting("Free bytes that the spool leaves on the disk."), Field(ge=0)
    ] = DEFAULT_FLOOR_BYTES
    flush_seconds: Annotated[
        float, Setting("How long launches wait at most for their segment to fill."), Field(ge=0)
    ] = 2.0
    drain_seconds: Annotated[
        float, Setting("How long a run may continue after SIGTERM.", at_runtime=True), Field(ge=0)
    ] = 5.0
    pause_at_celsius: Annotated[
        float, Setting("A GPU at least this hot waits before a run; 0: never."), Field(ge=0)
    ] = 85.0
    resume_below_celsius: Annotated[
        float, Setting("The run begins once the GPU is cooler than this."), Field(ge=0)
    ] = 75.0
    longest_cooling_seconds: Annotated[
        float, Setting("How long a hot GPU waits before its run begins anyway."), Field(ge=0)
    ] = 180.0
    metrics: MetricsSetting = ""
    metrics_certificate: MetricsCertificateSetting = None
    metrics_key: MetricsKeySetting = None
    metrics_readers: MetricsReadersSetting = None
    log_level: LogLevelSetting = LogLevel.INFO
    log_format: LogFormatSetting = LogFormat.TEXT

    @classmethod
    def default_file(cls) -> Path:
        """The settings file of a box's agent."""
        return Path("/etc/assay/agent.toml")

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        _ = self.telemetry  # raises if its temperatures contradict each other
        _ = self.metrics_place  # raises if it is not an address, or not safe
        return self

    @property
    def metrics_place(self) -> MetricsPlace | None:
        """Where metrics are served; None: nowhere."""
        return metrics_place(self.metrics, self.metrics_certificate, self.metrics_key, self.metrics_readers)

    @property
    def telemetry(self) -> TelemetrySettings:
        """How GPUs are watched while they measure, and when they are too hot to begin."""
        return TelemetrySettings(
            pause_at_celsius=self.pause_at_celsius,
            resume_below_celsius=self.resume_below_celsius,
            longest_wait_seconds=self.longest_cooling_seconds,
            minimum_free_bytes=self.minimum_free_bytes,
        )
