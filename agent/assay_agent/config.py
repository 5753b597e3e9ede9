"""The settings of an agent."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, model_validator

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
from assay_core.settings.declaration import ProgramSettings, setting
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

    server: str = setting(
        default_address,
        "unix:PATH, or HOST:PORT after 'assay-agent join', which needs a policy file.",
        default_text="the server that was joined, else this user's own socket",
        variable=SERVER_VARIABLE,
        metavar="ADDRESS",
    )
    socket_owner: str = setting(
        "",
        "User whose shared socket is trusted; a policy file must say what its group may ask for.",
        default_text="only this user's own",
        variable=SOCKET_OWNER_VARIABLE,
        metavar="USER",
    )
    state_dir: Path = setting(
        Path("assay-agent-state"),
        "Directory of this agent's identity and spool; only one agent may use it at a time.",
        flag="state",
        metavar="DIR",
    )
    name: str = setting(
        socket.gethostname,
        "Name of this agent.",
        default_text="the one it joined with, else the host's name",
        min_length=1,
    )
    agent_id: str = setting(
        "",
        "Identity in a new state directory, 32 hexadecimal digits. Must be unique on the server.",
        default_text="a random one",
        variable="ASSAY_AGENT_ID",
        pattern=r"^([0-9a-f]{32})?$",
    )
    policy_file: Path | None = setting(
        None,
        "TOML file that says what a server may ask for.",
        default_text=f"{DEFAULT_POLICY_FILE}, if it exists",
        flag="policy",
        at_runtime=True,
    )
    recorded_slots: int = setting(1, "How many recordings are played back at a time.", ge=0, le=1024)
    virtual: tuple[Annotated[VirtualGPUs, BeforeValidator(_virtual)], ...] = setting(
        (),
        "Offer virtual GPUs (V100, 'RTX 2060:2'); everything they measure is synthetic.",
        metavar="KIND[:COUNT]",
    )
    installed_gpus: bool = setting(
        True, "Offer this box's GPUs, if their tools are installed.", metavar="true|false"
    )
    gpus: tuple[str, ...] = setting(
        (),
        "Offer only these GPUs: ordinals in the order of the bus, UUIDs, or 'slurm': the Slurm job's.",
        default_text="all that CUDA_VISIBLE_DEVICES leaves",
        metavar="GPU,...",
    )
    spool_limit_bytes: int | None = setting(
        None,
        "Maximum size of the spool.",
        default_text="a quarter of the free disk, at most 4 GiB",
        at_runtime=True,
        ge=1,
    )
    minimum_free_bytes: int = setting(
        DEFAULT_FLOOR_BYTES, "Free bytes that the spool leaves on the disk.", ge=0
    )
    flush_seconds: float = setting(2.0, "How long launches wait at most for their segment to fill.", ge=0)
    drain_seconds: float = setting(5.0, "How long a run may continue after SIGTERM.", at_runtime=True, ge=0)
    pause_at_celsius: float = setting(85.0, "A GPU at least this hot waits before a run; 0: never.", ge=0)
    resume_below_celsius: float = setting(75.0, "The run begins once the GPU is cooler than this.", ge=0)
    longest_cooling_seconds: float = setting(
        180.0, "How long a hot GPU waits before its run begins anyway.", ge=0
    )
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
