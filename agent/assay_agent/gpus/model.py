"""The interface of modelled GPUs, and the one function that loads them.

What a modelled GPU measures is synthetic. The agent tells its stand-in tools by environment variables what to
model; only the package that implements the models knows these variables.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from assay_agent.gpus.sensors import GpuSensors, Reading
from assay_sampling.running.identity import ClockCondition, Device

# Imported by name and only for a modelled GPU: the package imports the agent's interfaces.
_PROVIDER = "assay_virtual.gpu_models"


class GpuModel(Protocol):
    """One modelled GPU, as a slot of the agent uses it.

    ``own_variables`` belong to the agent: campaigns may not set them, and runs are compared without them.
    ``version_variables`` change the tools' versions, options and lists; ``refusal_variables`` change which
    metrics they refuse.
    """

    own_variables: ClassVar[frozenset[str]]
    version_variables: ClassVar[tuple[str, ...]]
    refusal_variables: ClassVar[tuple[str, ...]]

    def share_variables(self, sm_percent: float) -> dict[str, str]:
        """The variables that give the tools a share of the SMs, in percent."""
        ...

    def gang_variables(self, gpus: Sequence[Mapping[str, str]]) -> dict[str, str]:
        """The variables that let the tools run one rank of a workload on each of several GPUs.

        ``gpus``: the variables of each (:class:`ModelledGPU`), in the order of their ordinals.
        """
        ...

    def clock_variables(self, clock: ClockCondition, environment: Mapping[str, str]) -> dict[str, str] | None:
        """The variables that lock the SM clock; None if the workload's ``environment`` asks to refuse it."""
        ...

    def bare_command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs a workload without a profiler."""
        ...

    def program(self, argv: Sequence[str]) -> str:
        """The file that a command runs on it: the workload file, else the program itself."""
        ...

    def open_sensors(self, environment: Mapping[str, str]) -> GpuSensors:
        """The sensors, as the workload's ``environment`` wants them; raises SensorError, ParameterError."""
        ...

    def idle_reading(self) -> Reading:
        """What its sensors say while it runs nothing."""
        ...


@dataclass(frozen=True)
class ModelledGPU:
    """A GPU to offer: ``variables`` tell its tools which one it is."""

    device: Device
    memory_bytes: int
    variables: Mapping[str, str]
    model: GpuModel


class GpuModels(Protocol):
    """All kinds of GPUs that are modelled."""

    def kind(self, name: str) -> str:
        """The kind in its usual spelling; raises ParameterError for an unknown kind."""
        ...

    def gpu(self, kind: str, number: int, agent_id: str = "") -> ModelledGPU:
        """The GPU of that number within its kind; each ``agent_id`` (hexadecimal) has its own GPUs."""
        ...

    def write_tools(self, folder: Path) -> None:
        """Write the stand-in tools, as executables, into a private folder; raises OSError."""
        ...


def gpu_models() -> GpuModels:
    """The modelled GPUs of this installation."""
    models: GpuModels = importlib.import_module(_PROVIDER).MODELS
    return models
